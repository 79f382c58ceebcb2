"""What ranks say: residency, commits, ledgers, confirmations, silence (rules B1-B8, D1, D2).

A rank goes through reported -> committed -> ledger heard; the group admits while every rank is
there. Every ledger heard, not only the first, is compared with what the scheduler believes.
"""

from __future__ import annotations

from scheduler_svc.core.admission import confirm, take_back
from scheduler_svc.core.caching import reclaim
from scheduler_svc.core.demand import refuse_too_demanding
from scheduler_svc.core.effects import (
    CommitAgreement,
    Deposed,
    HearLedger,
    Recompute,
    ReleaseOrder,
    TermRaised,
)
from scheduler_svc.core.ending import stop_running
from scheduler_svc.core.events import (
    Committed,
    Generation,
    LedgerEntry,
    RankConfirmed,
    RankLedger,
    RankLost,
    RankReported,
)
from scheduler_svc.core.mirror import SlotMirror
from scheduler_svc.core.ranks import Rank
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.answer import Pending
from stateroom.residency.states import SequenceEvent, SequenceState, SlotState

__all__ = ["on_committed", "on_rank_confirmed", "on_rank_ledger", "on_rank_lost", "on_rank_reported"]


def on_rank_reported(world: World, event: RankReported) -> None:
    """A rank's local answer, at its start and whenever it changes."""
    rank = world.ranks[event.rank]
    if not _keep_the_lead(world, event):
        return
    if rank.boot_id != event.boot_id:
        _restarted(world, rank, event.boot_id)
    rank.answer = event.answer
    rank.reserved_slots = event.reserved_slots
    rank.has_pool = event.has_pool
    rank.built_rows = max(rank.built_rows, event.built_rows)  # a report may be older than its commit's answer
    rank.lost_why = ""
    agree_and_commit(world)
    if rank.confirmed is not None:
        _hear_ledger(world, rank)


def _keep_the_lead(world: World, event: RankReported) -> bool:
    """A term the rank heard before us is raised over while nothing was committed, and final after."""
    if world.committed is None and event.highest_term >= world.term:
        world.term = event.highest_term + 1
        world.emit(TermRaised(world.term))
    elif event.highest_term > world.term:
        world.emit(
            Deposed(
                f"rank {event.rank} follows term {event.highest_term} and this scheduler has term {world.term}: "
                "another one leads the group, stop one of them"
            )
        )
        return False
    return True


def _restarted(world: World, rank: Rank, boot_id: str) -> None:
    """A new process: its pool has to be built again, and attached again by those who had (rule D2)."""
    restarted = bool(rank.boot_id)
    rank.boot_id = boot_id
    rank.built_rows, rank.told, rank.confirmed = 0, None, None
    world.open_confirmed_seats()
    rank.ledger_heard = rank.ledger_asked = False
    rank.sent.clear()
    if restarted:
        rank.unattached = {s.id for s in world.sessions.values() if rank.number in s.attached}
        take_back_all(world)


def agree_and_commit(world: World) -> None:
    """Takes the MIN again and tells every rank that does not have it (rules B2, B3, B8).

    A fall holds at once. A rise holds when the last rank has confirmed it: an order that came before the
    agreement would be refused there.
    """
    mismatch = world.ranks.mismatch()
    world.agreement = world.ranks.agreement()
    if mismatch or isinstance(world.agreement.answer, Pending):
        return
    changed = world.committed != world.agreement
    if changed:
        world.committed = world.agreement
        if world.mirror.reserved_slots != world.ranks.reserved_slots:
            world.mirror = SlotMirror(world.settings.ranks_count, world.ranks.reserved_slots)
        for session in world.sessions.values():
            session.outbox.agreement = world.agreement
        refuse_too_demanding(world)
    world.open_confirmed_seats()
    for rank in world.ranks:
        if not world.seats and not rank.built_rows:
            continue  # nothing fits: no pool is built, registration says why (rule B7)
        if rank.told != world.agreement:
            rank.told = world.agreement
            world.emit(
                CommitAgreement(rank.number, rank.boot_id, world.agreement, world.ranks.reserved_slots)
            )


def on_committed(world: World, event: Committed) -> None:
    """A rank built its rows; they must be the group's number or more (rule B4)."""
    rank = world.ranks[event.rank]
    if rank.boot_id != event.boot_id or world.committed is None:
        return  # of an earlier process
    rows = world.committed.rows(world.ranks.reserved_slots)
    if event.rows < rows:
        rank.lost_why = f"built {event.rows} rows and the group agreed on {rows}: restart it"
        return
    rank.built_rows, rank.confirmed = event.rows, event.agreement
    world.open_confirmed_seats()
    _hear_ledger(world, rank)


def on_rank_lost(world: World, event: RankLost) -> None:
    """The connection broke: residents go on, grants not yet told are taken back (rules C1, B2)."""
    rank = world.ranks[event.rank]
    rank.lost_why = event.why
    rank.told = None  # it may not have arrived
    rank.ledger_heard = rank.ledger_asked = False
    rank.sent.clear()
    take_back_all(world)
    world.agreement = world.ranks.agreement()


def take_back_all(world: World) -> None:
    """Every grant that was not told."""
    for sequence in list(world.binding.values()):
        take_back(world, sequence)


def on_rank_confirmed(world: World, event: RankConfirmed) -> None:
    """Orders were applied, slots became free."""
    rank = world.ranks[event.rank]
    if rank.boot_id != event.boot_id or not rank.ledger_heard:
        return  # of an earlier process or stream
    refused = {(order.slot, order.generation) for order in event.refused}
    while rank.sent and rank.sent[0][0] <= event.applied_sequence_number:
        for sequence, generation in rank.sent.popleft()[1]:
            if sequence.state is SequenceState.BINDING and sequence.generation == generation:
                confirm(world, sequence, rank.number, any((s, generation) in refused for s in sequence.slots))
    for slot in event.freed:
        world.mirror.freed(rank.number, slot)
    if refused:  # the picture of this rank was wrong: read its ledger before any other order (rule D1)
        for order in event.refused:
            world.refused_by_reason[order.reason] += 1
        rank.ledger_heard = False
        rank.sent.clear()
        take_back_all(world)
        _hear_ledger(world, rank)


def on_rank_ledger(world: World, event: RankLedger) -> None:
    """What a rank really holds, against what the scheduler believes (rules D1, D2, D3)."""
    rank = world.ranks[event.rank]
    if rank.boot_id != event.boot_id:
        return
    take_back_all(world)  # binds of an earlier stream, if any: this ledger knows nothing of them
    rank.ledger_heard, rank.ledger_asked = True, False
    rank.next_number = 1
    rank.sent.clear()
    world.generation_counter = max(world.generation_counter, event.highest_counter)
    world.mirror.load(rank.number, event.rows, event.entries)
    bound = {entry.slot: entry for entry in event.entries if entry.state is SlotState.BOUND}
    for sequence in list(world.residents.values()):
        _compare(world, rank, sequence, bound)
    for entry in bound.values():
        _unclaimed(world, rank, entry)
    for session_id in rank.unattached:  # only now is there a pool to attach
        world.sessions[session_id].outbox.attach.append(rank.number)


def _hear_ledger(world: World, rank: Rank) -> None:
    """Asked for once: a second ledger would arrive after binds that it does not show (rule D1)."""
    if not rank.ledger_heard and not rank.ledger_asked:
        rank.ledger_asked = True
        world.emit(HearLedger(rank.number, rank.boot_id))


def _compare(world: World, rank: Rank, sequence: Sequence, bound: dict[int, LedgerEntry]) -> None:
    """One owner against the ledger. Claimed entries leave `bound`."""
    has = [_is_owner(bound.get(slot), sequence.generation) for slot in sequence.slots]
    for slot, mine in zip(sequence.slots, has, strict=True):
        if mine:
            del bound[slot]
    if all(has):
        return
    sequence.lost_on.add(rank.number)
    if len(sequence.lost_on) == world.settings.ranks_count:
        sequence.slots = ()  # bound nowhere: the numbers are others' to take, the place is held till let go
    if sequence.state not in (SequenceState.LOST, SequenceState.RETIRING):
        lose(world, sequence, f"rank {rank.number} restarted and lost its state")


def _is_owner(entry: LedgerEntry | None, generation: Generation) -> bool:
    return entry is not None and entry.generation == generation


def lose(world: World, sequence: Sequence, message: str) -> None:
    """The executor is told to compute it again; its other slots stay until it let go (rule D2)."""
    if sequence.state is SequenceState.CACHED:  # nothing to compute again: it is forgotten
        reclaim(world, sequence)
        return
    stop_running(world, sequence)
    world.move(sequence, SequenceEvent.RANK_LOST)
    sequence.let_go = False
    world.sessions[sequence.session_id].outbox.recompute.append(
        Recompute(sequence.id, sequence.generation, message)
    )


def _unclaimed(world: World, rank: Rank, entry: LedgerEntry) -> None:
    """Bound here and owned by nobody we know: released if its session was heard, else kept (C4, D3)."""
    session = world.sessions.get(entry.session_id)
    if session is not None and session.listed:
        rank.releases.append(ReleaseOrder(entry.slot, entry.generation))
        world.mirror.releasing(rank.number, entry.slot)
    else:
        world.mirror.foreign.setdefault(entry.slot, {})[rank.number] = entry
