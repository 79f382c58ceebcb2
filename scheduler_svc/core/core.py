"""The admission core of one group: `handle` takes one event and returns the effects, in order.

    rank events     -> rank_events     residency, ledgers, confirmations
    session events  -> facts, resync   what the executor says
    every event     -> admission       the pass, at its end
    steps           -> planning        decodes, chunks
                    -> flush           one ordered message a rank, one answer or push a session

Pure and synchronous: the caller passes the time with each event and performs the effects.
"""

from __future__ import annotations

from scheduler_svc.core import facts, rank_events
from scheduler_svc.core.admission import admit
from scheduler_svc.core.effects import Decisions, Effect, Orders, Tell, Waiter
from scheduler_svc.core.ending import release_fenced
from scheduler_svc.core.events import (
    CancelAsked,
    Committed,
    DrainAsked,
    Event,
    RankConfirmed,
    RankLedger,
    RankLost,
    RankReported,
    SessionRegistered,
    StepMessage,
    StreamClosed,
    Tick,
)
from scheduler_svc.core.explain import group_sentence
from scheduler_svc.core.kv_pages import KvBook
from scheduler_svc.core.limits import expire
from scheduler_svc.core.planning import plan_step
from scheduler_svc.core.ranks import Rank
from scheduler_svc.core.resync import apply_list
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.watchdog import note_step, watch
from scheduler_svc.core.world import World
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.states import SequenceState

__all__ = ["AdmissionCore"]


class AdmissionCore:
    """One group's core. `world` is for reading; only `handle` changes it."""

    def __init__(self, settings: GroupSettings, term: int) -> None:
        self.world = World(settings, term)

    def handle(self, event: Event, now_ms: int) -> tuple[Effect, ...]:
        """Applies one event. Raises Refused for a message that is out of order; nothing changed then."""
        world = self.world
        assert now_ms >= world.now_ms, f"time went back from {world.now_ms} to {now_ms} ms"
        world.now_ms = now_ms
        expire(world)
        answer: tuple[Session, int, int] | None = None
        match event:
            case StepMessage():
                answer = self._step(event)
            case RankConfirmed():
                rank_events.on_rank_confirmed(world, event)
            case RankReported():
                rank_events.on_rank_reported(world, event)
            case Committed():
                rank_events.on_committed(world, event)
            case RankLedger():
                rank_events.on_rank_ledger(world, event)
            case RankLost():
                rank_events.on_rank_lost(world, event)
            case SessionRegistered():
                self._register(event)
            case StreamClosed():
                self._stream_closed(event)
            case CancelAsked():
                self._cancel(event)
            case DrainAsked():
                world.draining = True
            case Tick():
                watch(world)
        quiet = isinstance(event, StepMessage | Tick) or (
            isinstance(event, RankConfirmed) and not event.refused
        )
        if not quiet:
            world.ranks.refresh()
        admit(world)
        self._flush(answer)
        if not quiet:
            world.tell_readiness(group_sentence(world))
        effects, world.effects = tuple(world.effects), []
        return effects

    def _register(self, event: SessionRegistered) -> None:
        world = self.world
        if event.session_id not in world.sessions:
            session = Session(event.session_id, event.executor, event.attaches_pools)
            session.engine_budgets = event.engine_budgets
            settings = world.settings
            session.kv = KvBook(settings.kv_full_length, settings.draft_tokens + 1)
            session.left_tokens = world.settings.max_step_tokens
            session.left_sequences = world.settings.asked
            world.sessions[session.id] = session

    def _stream_closed(self, event: StreamClosed) -> None:
        session = self.world.sessions.get(event.session_id)
        if session is not None:
            session.streaming = False
            session.outbox = Decisions()  # whatever was not told is told by the next list's answer (D5)

    def _step(self, message: StepMessage) -> tuple[Session, int, int] | None:
        """Facts, then the plan of the step it asks for. Returns whom to answer."""
        world = self.world
        session = world.sessions.get(message.session_id)
        if session is None:
            raise Refused(
                ErrorReason.SESSION_UNKNOWN,
                f"session {message.session_id!r} is not known here: register it again",
            )
        if message.session_list is None and message.delta_number <= session.acknowledged_delta:
            if session.last_answer is not None:
                world.emit(session.last_answer)  # said again, nothing is applied twice (rule D5)
            return None
        self._check_order(session, message)
        session.acknowledged_delta = message.delta_number
        session.completed_step = max(session.completed_step, message.completed_step)
        if message.session_list is not None:
            session.streaming = True
            # its own count: steps went on while we were away (D7), or start anew in a new process (C8)
            session.step = session.completed_step = message.completed_step
            apply_list(world, session, message.session_list)
        for fact in message.facts:
            facts.apply_fact(world, session, fact)
        release_fenced(world, session.id)
        if not message.step:
            return None
        session.step = message.step
        decode_count = plan_step(world, session)
        outbox = session.outbox
        works = session.engine_budgets and session.chunking  # the engine plans these itself
        note_step(world, bool(decode_count or works or outbox.chunks or outbox.grants))
        if message.full:
            session.outbox.waiters = self._waiters(session)
        return session, message.step, decode_count

    @staticmethod
    def _check_order(session: Session, message: StepMessage) -> None:
        """Nothing is changed by a message that is out of order."""
        if message.session_list is None:
            if not session.streaming:
                raise Refused(
                    ErrorReason.INVALID_REQUEST,
                    f"the first message of a stream of session {session.id!r} has no list: send the whole list first",
                )
            if message.delta_number != session.acknowledged_delta + 1:
                raise Refused(
                    ErrorReason.INVALID_REQUEST,
                    f"delta {message.delta_number} does not follow {session.acknowledged_delta}: open the stream again",
                )
        if message.step and message.step <= session.step:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"step {message.step} is not after step {session.step}: number the steps upwards",
            )
        if message.session_list is None and message.completed_step > max(message.step, session.step):
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"completed_step {message.completed_step} was never asked: report only steps that were issued",
            )

    def _waiters(self, session: Session) -> list[Waiter]:
        """A full list, in the order of lanes; only on request, for it costs the queue."""
        world, rows = self.world, []
        admit(world)  # so that every lane has its reason
        for lane in world.lanes.lanes:
            spell = lane.clock.spell
            for sequence in lane.waiters():
                if sequence.session_id == session.id and spell is not None:
                    waited_ms = sum(lane.ms_by_reason(sequence, world.now_ms).values())
                    rows.append(Waiter(sequence.id, spell.reason, waited_ms))
        return rows

    def _cancel(self, event: CancelAsked) -> None:
        """By id, from outside. The executor of a running one is told; its Finish gives the slot back."""
        world = self.world
        sequence = world.sequences.get(event.sequence_id)
        if sequence is None:
            if event.sequence_id in world.ended:
                return
            raise Refused(
                ErrorReason.SEQUENCE_UNKNOWN, f"no sequence {event.sequence_id!r} lives here: check the id"
            )
        session = world.sessions[sequence.session_id]
        session.outbox.cancelled.append(sequence.id)
        sequence.cancel_asked = True
        if sequence.waits or sequence.state is SequenceState.BINDING:
            facts.cancel(world, session, sequence)

    def _flush(self, answer: tuple[Session, int, int] | None) -> None:
        world = self.world
        for rank in world.ranks:
            if (rank.binds or rank.releases) and rank.in_service:
                self._flush_rank(rank)
        for session in world.sessions.values():
            asked = answer is not None and answer[0] is session
            if asked or (session.streaming and session.outbox.urgent):
                step, decode_count = (answer[1], answer[2]) if asked and answer else (0, session.decode_count)
                self._tell(session, step, decode_count)

    def _note_first(self, name: str, number: int) -> None:
        """The first reason of a new waiter is kept for its story, whatever comes after."""
        sequence, lane = self.world.sequences.get(name), self.world.lanes.find(number)
        if sequence is not None and lane is not None and sequence.lane == number and not sequence.first_spell:
            sequence.first_spell = lane.clock.spell

    def _flush_rank(self, rank: Rank) -> None:
        number = rank.next_number
        rank.next_number += 1
        self.world.emit(Orders(rank.number, rank.boot_id, number, tuple(rank.releases), tuple(rank.binds)))
        rank.releases.clear()
        rank.binds.clear()
        if rank.binding:
            rank.sent.append((number, rank.binding))
            rank.binding = []

    def _tell(self, session: Session, step: int, decode_count: int) -> None:
        world = self.world
        outbox = session.take_outbox()
        for name, number, _ in outbox.queued:
            self._note_first(name, number)
            verdict = world.lanes.verdict_of(number)
            if verdict is not None:
                outbox.lanes[number] = verdict
        tell = Tell(
            session_id=session.id,
            step=step,
            acknowledged_delta=session.acknowledged_delta,
            decisions=outbox,
            binding_count=len(world.binding),
            residents_count=len(world.residents),
            waiting_count=world.lanes.waiting_count,
            decode_count=decode_count,
        )
        if step:
            session.last_answer = tell
        world.emit(tell)
