"""The driver of one group: owns clock, rank links, open streams and spans around the pure core.

Everything happens on one event loop. `handle` feeds one event to the core and performs its effects in
order: orders go to the rank links, decisions to the step streams, stories to the spans.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence

import grpc.aio
import structlog
from opentelemetry.trace import Tracer

from scheduler_svc.convert import steps as convert
from scheduler_svc.convert.people import RankReport
from scheduler_svc.convert.ranks import cap_zero
from scheduler_svc.core.core import AdmissionCore
from scheduler_svc.core.effects import (
    AdmissionEnded,
    AdmissionStarted,
    CommitAgreement,
    Deposed,
    Effect,
    GroupChanged,
    HearLedger,
    NoProgress,
    Orders,
    Tell,
    TermRaised,
)
from scheduler_svc.core.events import Event, SessionRegistered, StreamClosed, Tick
from scheduler_svc.core.explain import group_sentence
from scheduler_svc.core.integrity import check_integrity
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.rank_link import RankLink
from scheduler_svc.tracing import AdmissionSpans, AgreementSpans
from stateroom.ordered_stream import OrderedStream
from stateroom.residency.agreement import truncate_warmup
from stateroom.residency.answer import Bounded
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.wire_words import answer_to

__all__ = ["GroupDriver"]

TICK_SECONDS = 0.25
INTEGRITY_EVERY_TICKS = 40  # while nothing happens


class GroupDriver:
    """`on_ready(ready)` hears changes of readiness, `on_term(term)` a raised term, `on_deposed` the end."""

    def __init__(
        self,
        settings: GroupSettings,
        term: int,
        rank_addresses: Sequence[str],
        tracer: Tracer,
        interceptors: list[grpc.aio.ClientInterceptor],
        on_ready: Callable[[bool], None],
        on_term: Callable[[int], None],
        on_deposed: Callable[[str], None],
    ) -> None:
        self.boot_id = uuid.uuid4().hex
        self.core = AdmissionCore(settings, term)
        self._on_ready, self._on_term, self._on_deposed = on_ready, on_term, on_deposed
        self._admissions = AdmissionSpans(tracer)
        self._agreements = AgreementSpans(tracer)
        self._log = structlog.get_logger()
        self._links = [
            RankLink(self, number, address, settings.asked, self._agreements, interceptors)
            for number, address in enumerate(rank_addresses)
        ]
        self._streams: dict[str, OrderedStream[pb.StepResponse]] = {}
        self._events_count = 0

    @property
    def term(self) -> int:
        """Term of this scheduler."""
        return self.core.world.term

    async def run(self) -> None:
        """Keeps all rank links and the clock, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.run())
            group.create_task(self._tick())

    async def _tick(self) -> None:
        ticks, seen = 0, 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.handle(Tick())
            ticks += 1
            idle, seen = self._events_count == seen + 1, self._events_count
            if idle and ticks % INTEGRITY_EVERY_TICKS == 0:
                self.check_integrity()

    def check_integrity(self) -> list[str]:
        """Counts again and reports what differs; never ends the process (scenario L22)."""
        errors = check_integrity(self.core.world)
        for sentence in errors:
            self._log.error("integrity", broken=sentence)
        return errors

    def close(self) -> None:
        """Ends the spans that are open."""
        self._agreements.close()

    # ---- events in, effects out ----

    def handle(self, event: Event) -> None:
        """Feeds the core and performs what it wants. Raises Refused as the core does."""
        self._events_count += 1
        for effect in self.core.handle(event, time.monotonic_ns() // 1_000_000):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Tell():
                self._tell(effect)
            case Orders():
                self._links[effect.rank].send(effect)
            case AdmissionStarted():
                self._admissions.started(effect)
            case AdmissionEnded():
                self._admissions.ended(effect)
            case CommitAgreement():
                self._links[effect.rank].commit(effect)
            case HearLedger():
                self._links[effect.rank].hear_ledger()
            case GroupChanged():
                self._agreements.changed(effect)
                self._log.info("group", ready=effect.ready, says=effect.sentence)
                self._on_ready(effect.ready)
            case TermRaised():
                self._on_term(effect.term)
            case Deposed():
                self._on_deposed(effect.sentence)
            case NoProgress():
                self._log.error("no progress", says=effect.sentence)

    def _tell(self, effect: Tell) -> None:
        stream = self._streams.get(effect.session_id)
        if stream is None:
            return  # told again by the answer to its next list (rule D5)
        boot_ids = [rank.boot_id for rank in self.core.world.ranks]
        attach = [self.rank_address(number) for number in effect.decisions.attach]
        stream.put(convert.step_response(effect, self.term, boot_ids, attach))
        if not effect.step:
            stream.flush_soon()

    # ---- sessions ----

    def register(self, request: pb.RegisterSessionRequest) -> Session:
        """Makes or resumes a session. NOT_READY or NOTHING_FITS while the group cannot admit."""
        world = self.core.world
        if not 0 < len(request.executor) <= 128 or not request.executor.isprintable():
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"executor {request.executor[:140]!r} is not 1 to 128 printable characters: give it a name",
            )
        if not world.ready and not world.awaits(request.session_id):
            if isinstance(world.agreement.answer, Bounded) and not world.seats:
                raise Refused(ErrorReason.NOTHING_FITS, self.nothing_fits())
            raise Refused(ErrorReason.NOT_READY, group_sentence(world))
        session_id = request.session_id or uuid.uuid4().hex
        self.handle(
            SessionRegistered(
                session_id,
                request.executor,
                request.attaches_pools,
                request.budgets == pb.BUDGETS_ENGINE,
            )
        )
        return world.sessions[session_id]

    def nothing_fits(self) -> str:
        """The one error of a cap of 0: rank, quota, slot, remedy (rule B7)."""
        world = self.core.world
        sentences = []
        for number in world.agreement.limiting_ranks:
            report = self._links[number].report
            if report is not None:
                sentences.append(cap_zero(number, report, world.settings.asked))
        return " ".join(sentences) or group_sentence(world)

    def registration(self, session: Session) -> pb.RegisterSessionResponse:
        """All numbers derive from one agreement (rules B4, B5)."""
        world = self.core.world
        assert world.committed is not None, "a session was registered before an agreement"
        return pb.RegisterSessionResponse(
            session_id=session.id,
            term=self.term,
            boot_id=self.boot_id,
            agreed=answer_to(world.committed.answer),
            seats=world.seats,
            reserved_slots=world.ranks.reserved_slots,
            ranks=[self.rank_address(rank.number) for rank in world.ranks],
            warmup_batches=truncate_warmup(world.settings.warmup_batches, world.seats),
            max_sequence_tokens=world.settings.max_sequence_tokens,
            max_step_tokens=world.settings.max_step_tokens,
        )

    def rank_address(self, number: int) -> pb.RankAddress:
        """How an executor reaches a rank."""
        rank = self.core.world.ranks[number]
        address = self._links[number].address
        return pb.RankAddress(rank=number, address=address, boot_id=rank.boot_id, has_pool=rank.has_pool)

    def open_stream(self, stream: OrderedStream[pb.StepResponse]) -> None:
        """The session's one stream; an older one ends (rule D4)."""
        if stream.owner not in self.core.world.sessions:
            raise Refused(
                ErrorReason.SESSION_UNKNOWN,
                f"session {stream.owner!r} is not known here: register it again",
            )
        old = self._streams.get(stream.owner)
        if old is not None:
            old.end(
                Refused(ErrorReason.STREAM_REPLACED, f"a newer stream of session {stream.owner} took over")
            )
            self.handle(StreamClosed(stream.owner))
        self._streams[stream.owner] = stream

    def close_stream(self, stream: OrderedStream[pb.StepResponse]) -> None:
        """Its call ended. What the session holds stays held."""
        if self._streams.get(stream.owner) is stream:
            del self._streams[stream.owner]
            with contextlib.suppress(Refused):
                self.handle(StreamClosed(stream.owner))

    def end_streams(self) -> None:
        """The scheduler stops: every executor goes on with what runs and connects again (rules D7, D8)."""
        for stream in list(self._streams.values()):
            stream.end(
                Refused(ErrorReason.DRAINING, "this scheduler stops: go on with what runs and connect again")
            )

    # ---- people ----

    def reports(self) -> dict[int, RankReport]:
        """Every rank's address, last report and its age in ms."""
        now = asyncio.get_running_loop().time()
        return {
            link.number: (link.address, link.report, int(1000 * (now - link.report_at)) if link.report else 0)
            for link in self._links
        }
