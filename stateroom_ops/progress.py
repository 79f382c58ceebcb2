"""The progress bar of a replay, on a terminal only."""

from __future__ import annotations

import sys
import time

import rich.progress
from rich.console import Console

from stateroom_ops.replay_tally import ReplayTally

__all__ = ["Progress"]

REFRESH_SECONDS = 0.1


class Progress:
    """`with Progress(n) as p`: p.stepped(tally) after each step, p.say(line) for a line above the bar."""

    def __init__(self, requests_count: int) -> None:
        self._console = Console(stderr=True)
        self._bar = rich.progress.Progress(
            rich.progress.BarColumn(bar_width=30),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("starting", total=requests_count)
        self._drawn_at = 0.0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(line, markup=False, highlight=False)

    def stepped(self, tally: ReplayTally) -> None:
        """Draws again if it is time."""
        now = time.monotonic()
        if self._bar.disable or now - self._drawn_at < REFRESH_SECONDS:
            return
        self._drawn_at = now
        reasons = ", ".join(f"{n} {reason}" for reason, n in tally.waiting_by_reason.items())
        self._bar.update(
            self._task,
            completed=tally.settled,
            description=f"step {tally.steps}  {tally.residents} resident  {reasons or 'none waiting'}",
        )
