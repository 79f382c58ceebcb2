"""One whole replay: a group joined or started, a session, the loop, the checks at the end, the summary."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stateroom.attach import AttachedPool, attach, check_rows
from stateroom.client import Session
from stateroom.errors import StateroomError
from stateroom.telemetry import Telemetry, setup_telemetry
from stateroom_ops.group_settings import GroupSettings
from stateroom_ops.local_group import LocalGroup
from stateroom_ops.operator_client import OperatorClient, list_slots
from stateroom_ops.rank_words import cap_of, quota_words
from stateroom_ops.replay import ReplayExecutor
from stateroom_ops.replay_clock import RealClock, VirtualClock
from stateroom_ops.replay_pools import ReplayPools
from stateroom_ops.replay_tally import ReplayTally
from stateroom_ops.run_dir import remove_past_runs
from stateroom_ops.traces import TraceRequest

__all__ = ["ReplayPlan", "RunningReplay", "replay_session"]

CONNECT_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What to replay and how. `speed` None is virtual time; `group` None joins `connect`."""

    requests: Sequence[TraceRequest]
    speed: float | None
    step_ms: float
    rate: float = 1.0
    group: GroupSettings | None = None
    connect: str = ""

    @property
    def run(self) -> str:
        """Prefix of ids: plain in a group of our own, never used before in one that others use too."""
        return "req" if self.group is not None else f"r{uuid.uuid4().hex[:6]}"


@dataclass(slots=True)
class RunningReplay:
    """An executor that is connected and may `run`."""

    plan: ReplayPlan
    session: Session
    executor: ReplayExecutor
    operator: OperatorClient
    group: LocalGroup | None
    pools: ReplayPools

    async def run(self) -> ReplayTally:
        """Replays, then checks every rank's ledger."""
        tally = await self.executor.run(self.plan.requests)
        for rank in self.session.info.ranks:
            await self._check_ledger(rank.rank, rank.address, tally)
        return tally

    async def summary(self, tally: ReplayTally) -> dict[str, object]:
        """The tally beside the group's agreement (names fixed by the command's documentation)."""
        description = await self.operator.describe()
        trace_file = str(self.group.trace_file) if self.group is not None else None
        return {
            "asked": description.asked,
            "cap": cap_of(description.agreed),
            "unbounded": description.agreed.WhichOneof("answer") == "unbounded",
            "limiting_ranks": list(description.limiting_ranks),
            "limiting_because": [
                f"rank {number}: {quota_words(rank)}"
                for number, rank in enumerate(description.ranks)
                if rank.limiting
            ],
            "sentence": description.sentence,
            "virtual_time": self.plan.speed is None,
            **tally.as_dict(),
            "trace_file": trace_file,
        }

    async def _check_ledger(self, rank: int, address: str, tally: ReplayTally) -> None:
        try:
            answer = await list_slots(address)
        except StateroomError as error:
            tally.fail(f"rank {rank}: {error.message}")
            return
        for broken in answer.integrity_errors:
            tally.fail(f"rank {rank}: its ledger is broken: {broken}")
        if self.group is not None and answer.counts.bound:  # nobody else uses a group of our own
            tally.fail(
                f"rank {rank}: {answer.counts.bound} slots are still bound after the last sequence ended"
            )


@contextlib.asynccontextmanager
async def replay_session(
    plan: ReplayPlan, say: Callable[[str], None], on_step: Callable[[ReplayTally], None]
) -> AsyncIterator[RunningReplay]:
    """Starts or joins the group and connects; undoes all of it at the end.

    Errors: LocalGroupError, RunDirError, StateroomError, each one sentence.
    """
    torch.set_num_threads(1)  # stamps are a few elements a row: helpers would only spin beside the ranks
    async with contextlib.AsyncExitStack() as stack:
        group = None
        if plan.group is not None:
            remove_past_runs(plan.group.run_dir.parent)
            group = await stack.enter_async_context(LocalGroup(plan.group, say))
        address = group.scheduler_address if group is not None else plan.connect
        spans = _RequestSpans(group.trace_file if group is not None else None)
        stack.callback(spans.close)
        session = await Session.connect(
            address, executor="stateroom-replay", attaches_pools=True, timeout_s=CONNECT_SECONDS_MAX
        )
        stack.push_async_callback(session.close)
        operator = await stack.enter_async_context(OperatorClient(address))
        pools = ReplayPools(lambda rank_address: _attach(rank_address, session))
        stack.callback(pools.close)
        virtual = plan.speed is None
        executor = ReplayExecutor(
            session,
            pools,
            VirtualClock(plan.step_ms, plan.rate)
            if virtual
            else RealClock(plan.step_ms, (plan.speed or 1.0) * plan.rate),
            run=plan.run,
            traceparent_of=spans.start,
            on_end=spans.end,
            on_event=say,
            on_step=on_step,
        )
        yield RunningReplay(plan, session, executor, operator, group, pools)


def _attach(address: str, session: Session) -> AttachedPool:
    """The pool of a rank, with the session's own numbers (rule B4)."""
    pool = attach(address, session_id=session.info.session_id)
    check_rows(pool, session.info.seats, session.info.reserved_slots)
    return pool


class _RequestSpans:
    """A `request` span a sequence, parent of its admission span (section 7)."""

    def __init__(self, trace_file: Path | None) -> None:
        self._telemetry: Telemetry = setup_telemetry("stateroom-replay", trace_file=trace_file)
        self._propagator = TraceContextTextMapPropagator()
        self._open: dict[str, Span] = {}

    def start(self, name: str) -> str:
        """The traceparent of a new request."""
        span = self._telemetry.tracer.start_span(
            "request", context=Context(), attributes={"stateroom.sequence.id": name}
        )
        self._open[name] = span
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span, Context()))
        return carrier.get("traceparent", "")

    def end(self, name: str, outcome: str) -> None:
        """It has come to an end."""
        span = self._open.pop(name, None)
        if span is not None:
            span.set_attribute("stateroom.outcome", outcome)
            span.end()

    def close(self) -> None:
        """Requests that were under way are exported too (fact M20)."""
        for name in list(self._open):
            self.end(name, "interrupted")
        self._telemetry.shutdown()
