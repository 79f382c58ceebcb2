"""A scheduler and its ranks as processes on unix sockets in one private folder.

    async with LocalGroup(settings) as group:
        session = await Session.connect(group.scheduler_address, executor="me")

Ends them in order: the scheduler first, so that it does not report its ranks as lost. A child that dies
by itself is said in a sentence; the others stay up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from stateroom.errors import StateroomError
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom_ops.child_process import Child
from stateroom_ops.group_settings import GroupSettings
from stateroom_ops.operator_client import OperatorClient
from stateroom_ops.rank_words import rank_line
from stateroom_ops.run_dir import GroupRecord, end_leftovers, safe_dir, write_record

__all__ = ["LocalGroup", "LocalGroupError"]

STOP_GRACE_SECONDS = 4.0
READY_SECONDS_MAX = 120.0  # a cold machine takes most of it to import torch in every rank
ASK_EVERY_SECONDS = 0.1
SCHEDULER = -1  # its key among the children, whose others are ranks


class LocalGroupError(RuntimeError):
    """The group did not become ready; one sentence with the process, what it said, and its log."""


class LocalGroup:
    """`say` hears one line for each thing a person at the terminal wants to know."""

    def __init__(self, settings: GroupSettings, say: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self._say = say or (lambda line: None)
        self._children: dict[int, Child] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._died: asyncio.Queue[tuple[int | None, str]] = asyncio.Queue()

    @property
    def scheduler_address(self) -> str:
        """gRPC target of the scheduler."""
        return self.settings.scheduler_address

    @property
    def rank_addresses(self) -> tuple[str, ...]:
        """gRPC targets in rank order."""
        return self.settings.rank_addresses

    @property
    def trace_file(self) -> Path:
        """JSON lines of all processes."""
        return self.settings.trace_file

    async def __aenter__(self) -> LocalGroup:
        try:
            await self.start()
            await self.wait_ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts every process; does not wait. Errors: RunDirError, AddressError, OSError."""
        self.settings.check()
        run_dir = safe_dir(self.settings.run_dir)
        end_leftovers(run_dir)
        _clear(run_dir)
        self.settings.config_file.write_text(json.dumps(self.settings.config))
        self._record()
        for rank in range(self.settings.ranks_count):
            delay = self.settings.start_after_s.get(rank, 0.0)
            self._starting[rank] = asyncio.create_task(self._start_rank(rank, delay))
        await asyncio.gather(*(t for r, t in self._starting.items() if r not in self.settings.start_after_s))
        await self._start_scheduler()

    async def wait_ready(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Until the scheduler's health says SERVING; LocalGroupError if a process dies or nothing fits."""
        ready = asyncio.create_task(self._ask_until_ready())
        death = asyncio.create_task(self._died.get())
        try:
            done, _ = await asyncio.wait(
                {ready, death}, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED
            )
            if death in done:
                raise LocalGroupError(death.result()[1])
            if ready not in done:
                raise LocalGroupError(
                    f"group {self.settings.name!r} is not ready after {seconds_max:g} s: "
                    f"look at the logs in {self.settings.run_dir}"
                )
            ready.result()
        finally:
            ready.cancel()
            death.cancel()

    async def next_death(self) -> tuple[int | None, str]:
        """Waits for a process that ends by itself: its rank (None for the scheduler), the sentence."""
        return await self._died.get()

    def kill(self, rank: int | None = None) -> None:
        """SIGKILL to one rank, or to the scheduler, as a fault would."""
        self._children[SCHEDULER if rank is None else rank].kill()

    async def restart(self, rank: int | None = None) -> None:
        """Starts a rank, or the scheduler, again that was killed or has died, with the same flags."""
        child = self._children.get(SCHEDULER if rank is None else rank)
        if child is not None:
            await child.ended()
        if rank is None:
            await self._start_scheduler()
        else:
            await self._start_rank(rank, 0.0)

    def log_of(self, rank: int | None = None) -> Path:
        """Log of a rank, or of the scheduler."""
        return self.settings.run_dir / ("scheduler.log" if rank is None else f"rank{rank}.log")

    async def stop(self) -> None:
        """Ends all, the scheduler first. Safe to call twice."""
        for starting in self._starting.values():
            starting.cancel()
        # one that is just being started is among the children only when its task is over
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        scheduler = self._children.get(SCHEDULER)
        if scheduler is not None:
            await scheduler.stop(STOP_GRACE_SECONDS)
        await asyncio.gather(
            *(child.stop(STOP_GRACE_SECONDS) for rank, child in self._children.items() if rank != SCHEDULER)
        )
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    # ---- processes ----

    async def _start_rank(self, rank: int, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        await self._start_child(rank, f"rank {rank}", self.settings.rank_command(rank), self.log_of(rank))

    async def _start_scheduler(self) -> None:
        command = self.settings.scheduler_command()
        await self._start_child(SCHEDULER, "scheduler", command, self.log_of())

    async def _start_child(self, key: int, name: str, command: list[str], log: Path) -> None:
        child = await Child.start(name, command, log)
        self._children[key] = child
        self._record()
        watching = asyncio.create_task(self._watch(key, child))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _watch(self, key: int, child: Child) -> None:
        code = await child.ended()
        if not child.stopping:
            self._died.put_nowait((None if key == SCHEDULER else key, child.obituary(code)))

    def _record(self) -> None:
        settings = self.settings
        pids = tuple(child.pid for child in self._children.values())
        record = GroupRecord(
            settings.name,
            os.getpid(),
            settings.scheduler_address,
            settings.rank_addresses,
            str(settings.trace_file),
            pids,
        )
        write_record(settings.run_dir, record)

    # ---- readiness ----

    async def _ask_until_ready(self) -> None:
        said: dict[int, str] = {}
        async with OperatorClient(self.scheduler_address) as client:
            while True:
                with contextlib.suppress(StateroomError):  # it is not listening yet
                    description = await client.describe()
                    self._say_news(description, said)
                    _refuse_nothing_fits(description)
                    if await client.is_ready():
                        self._say(f"scheduler: ready; {description.sentence}")
                        return
                await asyncio.sleep(ASK_EVERY_SECONDS)

    def _say_news(self, description: pb.DescribeResidencyResponse, said: dict[int, str]) -> None:
        for number, rank in enumerate(description.ranks):
            line = rank_line(number, rank)
            if said.get(number) != line:
                said[number] = line
                self._say(line)


def _refuse_nothing_fits(description: pb.DescribeResidencyResponse) -> None:
    if description.agreed.WhichOneof("answer") == "bounded" and not description.agreed.bounded.slots_count:
        raise LocalGroupError(description.sentence)


def _clear(run_dir: Path) -> None:
    """Files of an earlier run in this folder; the terms stay, they only grow (rule D6)."""
    for pattern in ("*.log", "*.sock", "*.pool", "trace.jsonl", "model.json"):
        for path in run_dir.glob(pattern):
            path.unlink(missing_ok=True)
