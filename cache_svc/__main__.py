"""python -m cache_svc: the cache service of one rank as a process."""

import signal

if __name__ == "__main__":
    # torch takes a second to load: a Ctrl-C in it just ends the process, until the service has its own handler
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cache_svc.command import main

    main()
