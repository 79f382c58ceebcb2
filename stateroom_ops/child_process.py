"""One service of a local group as a child process: started by exec (fact M13), logged, stopped, mourned."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Child"]

LOG_BYTES_SHOWN = 4096
LOG_LINES_SHOWN = 3


class Child:
    """A process under `name`; what it prints goes to `log`. `ended` is set once it is gone."""

    def __init__(self, name: str, log: Path, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.log = log
        self.stopping = False
        self._process = process
        self._waiting = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log: Path) -> Child:
        """Runs `command` in a process group of its own, so that Ctrl-C reaches it through us only."""
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                process_group=0,
            )
        finally:
            os.close(output)
        return cls(name, log, process)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """False once it is gone."""
        return self._process.returncode is None

    async def ended(self) -> int:
        """Waits for its end; the exit code, negative for a signal."""
        return await asyncio.shield(self._waiting)

    def kill(self) -> None:
        """SIGKILL, as a fault would."""
        self._send(signal.SIGKILL)

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL for one that is still there after the grace."""
        self.stopping = True
        self._send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.ended(), grace_seconds)
        except TimeoutError:
            self._send(signal.SIGKILL)
            await self.ended()

    def _send(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def last_words(self) -> str:
        """The last lines of its log, in one line."""
        try:
            with open(self.log, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_BYTES_SHOWN))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("Error: ")]
        return errors[-1].removeprefix("Error: ") if errors else " | ".join(lines[-LOG_LINES_SHOWN:])

    def obituary(self, code: int) -> str:
        """One sentence: who, how, its last words, where the rest is."""
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        sent = code in (-signal.SIGKILL, -signal.SIGTERM)  # from outside: it had no time to say anything
        words = "" if sent else self.last_words()
        return f"{self.name} {how}{': ' + words if words else ''} (log: {self.log})"
