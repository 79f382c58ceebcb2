"""A script's world over real processes: a scheduler and its ranks on unix sockets, the SDK's session."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from stateroom.client import Session
from stateroom.errors import StateroomError
from stateroom.v1 import types_pb2 as types
from stateroom_ops.local_group import LocalGroup
from stateroom_ops.operator_client import OperatorClient, list_slots
from tests.scenarios.core_world import told
from tests.services.groups import small

__all__ = ["ServiceWorld"]

LOOKS = 4  # 10 ms apart


def _word(number: int, enum: object) -> str:
    return enum.Name(number).split("_", 2)[2]  # type: ignore[attr-defined]


class ServiceWorld:
    """See tests/scenarios/script.py. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._held: dict[str, int] = {}
        self._last = 0
        self._names: list[str] = []

    async def __aenter__(self) -> ServiceWorld:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def group(
        self,
        cap: int = 1,
        ranks: int = 2,
        asked: int = 16,
        max_tokens: int = 1024,
        unit: int = 16,
        policy: str = "best_effort",
    ) -> None:
        assert ranks == 2, "real groups of scripts have two ranks"
        settings = small(
            self._folder,
            cap,
            max_batch_size=asked // 2,
            max_tokens=max_tokens,
            chunk_unit=unit,
            policy=policy,
        )
        self._addresses = settings.rank_addresses
        self._running = await self._stack.enter_async_context(LocalGroup(settings, lambda line: None))
        self._session = await Session.connect(settings.scheduler_address, executor="script", timeout_s=30)
        self._stack.push_async_callback(self._session.close)
        self._operator = await self._stack.enter_async_context(OperatorClient(settings.scheduler_address))

    def submit(
        self, name: str, kind: str = "context", prompt: int = 16, output: int = 8, **fields: int | str
    ) -> None:
        self._names.append(name)
        self._session.submit(name, prompt, output, kind=kind, **fields)  # type: ignore[arg-type]

    def finish(self, name: str) -> None:
        self._session.finish(name)

    def cancel(self, name: str) -> None:
        self._session.cancel(name)

    def transfer(self, name: str, event: str) -> None:
        self._session.transfer(name, event)

    def suspend(self, name: str, suspended: bool) -> None:
        (self._session.suspend if suspended else self._session.resume)(name)

    def let_go(self, name: str) -> None:
        self._session.let_go(name)

    async def restart(self, rank: int) -> None:
        self._running.kill(rank)
        await self._running.next_death()
        await self._running.restart(rank)
        while True:  # both: it was noticed that it went, and it is back
            boots = {r.rank: r.boot_id for r in self._session.info.ranks}
            described = await self._operator.describe()
            report = described.ranks[rank].report
            if report.boot_id not in ("", boots[rank]) and await self._operator.is_ready():
                return
            await asyncio.sleep(0.02)

    async def step(self) -> str:
        decisions = await self._session.step(completed_step=self._last)
        self._last = decisions.step
        await self._settle()
        held = {
            name: h.handles[0].generation.counter if h.handles else 0
            for name, h in self._session.held.items()
        }
        new = [name for name, counter in held.items() if self._held.get(name) != counter]
        self._held = held
        heard = self._session._book.heard
        slots = {n: ",".join(str(h.slot) for h in self._session.held[n].handles) or "none" for n in new}
        return told(
            decisions.step,
            decisions.decode_count,
            chunks=[f"{c.sequence_id} {c.start}+{c.tokens}" for c in decisions.chunks],
            granted=[f"{name} in {slots[name]}" for name in sorted(new, key=lambda n: held[n])],
            rejected=sorted(
                f"{r.sequence_id} {r.reason}" for r in (*decisions.rejections, *heard.rejections)
            ),
            recompute=sorted(f"{r.sequence_id}/{r.generation[1]}" for r in decisions.recompute),
        )

    async def _settle(self) -> None:
        """Until every bind is told and every freed row is zero, and the same is seen again for a while:
        what a rank has freed is still on its way to the scheduler."""
        same, seen = 0, b""
        while same < LOOKS:
            await self._session.settle()
            described = await self._operator.describe()
            kinds = {_word(k.state, types.SequenceState) for k in described.residents_by_kind}
            counts = [(await list_slots(address)).counts for address in self._addresses]
            quiet = all(not c.scrubbing for c in counts) and "BINDING" not in kinds
            quiet = quiet and ("LOST" in kinds or all(c.bound == described.slots_held for c in counts))
            picture = b"".join(k.SerializeToString() for k in described.residents_by_kind)
            same = same + 1 if quiet and picture == seen else 0
            seen = picture
            await self._session.wait(0.01)

    async def show(self) -> str:
        holders, waiting = [], []
        for name in self._names:
            try:
                e = await self._operator.explain(name)
            except StateroomError:
                continue
            state = _word(e.state, types.SequenceState)
            if e.outcome or state == "UNSPECIFIED":
                continue
            (waiting if e.reason else holders).append(
                f"{name} {_word(e.reason, types.WaitReason)}" if e.reason else f"{name} {state}"
            )
        return f"residents: {', '.join(sorted(holders)) or '-'}\nwaiting: {', '.join(sorted(waiting)) or '-'}"

    async def why(self, name: str) -> str:
        e = await self._operator.explain(name)
        state = e.outcome or _word(e.state, types.SequenceState)
        reason = _word(e.reason, types.WaitReason) if e.reason else "-"
        ranks = ",".join(map(str, e.limiting_ranks)) or "-"
        return f"{name}: {state}, {reason}, {e.position} ahead, cap {e.cap}, {e.residents} hold, limited by {ranks}"
