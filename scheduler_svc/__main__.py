"""python -m scheduler_svc: one group's scheduler as a process."""

import signal

if __name__ == "__main__":
    # the imports take a while: a Ctrl-C in them just ends the process, until the service has its own handler
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from scheduler_svc.command import main

    main()
