"""Messages to and from cache services, as core events and effects."""

from __future__ import annotations

from scheduler_svc.core import effects, events
from stateroom.residency.sizing import SizingTerms, cap_zero_sentence
from stateroom.v1 import cache_service_pb2 as cache_pb
from stateroom.wire_words import (
    answer_from,
    answer_to,
    generation_from,
    generation_to,
    slot_state_from,
)

__all__ = ["cap_zero", "commit_request", "confirmed", "ledger", "orders", "reported"]


def reported(rank: int, message: cache_pb.ResidencyQueryResponse) -> events.RankReported:
    """A rank's residency."""
    return events.RankReported(
        rank=rank,
        boot_id=message.boot_id,
        answer=answer_from(message.local),
        reserved_slots=message.terms.reserved_slots,
        has_pool=message.terms.slot_bytes > 0,
        highest_term=message.highest_term,
        built_rows=message.slots.rows,
    )


def commit_request(
    effect: effects.CommitAgreement, term: int, leader_boot_id: str
) -> cache_pb.CommitResidencyRequest:
    """What a rank is told of the agreement."""
    return cache_pb.CommitResidencyRequest(
        term=term,
        leader_boot_id=leader_boot_id,
        rank_boot_id=effect.boot_id,
        agreed=answer_to(effect.agreement.answer),
        asked=effect.agreement.asked,
        reserved_slots=effect.reserved_slots,
    )


def orders(effect: effects.Orders, term: int, leader_boot_id: str) -> cache_pb.BindRequest:
    """One ordered message."""
    return cache_pb.BindRequest(
        term=term,
        leader_boot_id=leader_boot_id,
        rank_boot_id=effect.boot_id,
        sequence_number=effect.sequence_number,
        releases=[
            cache_pb.ReleaseOrder(slot=o.slot, generation=generation_to(o.generation))
            for o in effect.releases
        ],
        binds=[
            cache_pb.BindOrder(
                slot=o.slot,
                generation=generation_to(o.generation),
                sequence_id=o.sequence_id,
                session_id=o.session_id,
            )
            for o in effect.binds
        ],
    )


def ledger(rank: int, response: cache_pb.BindResponse) -> events.RankLedger:
    """The first response of a rank's stream."""
    entries = tuple(
        events.LedgerEntry(
            slot=e.slot,
            state=slot_state_from(e.state),
            generation=generation_from(e.generation),
            sequence_id=e.sequence_id,
            session_id=e.session_id,
        )
        for e in response.ledger.entries
    )
    return events.RankLedger(
        rank, response.rank_boot_id, response.ledger.rows, entries, response.ledger.highest_generation.counter
    )


def confirmed(rank: int, response: cache_pb.BindResponse) -> events.RankConfirmed:
    """A later response."""
    return events.RankConfirmed(
        rank=rank,
        boot_id=response.rank_boot_id,
        applied_sequence_number=response.applied_sequence_number,
        refused=tuple(
            events.RefusedOrder(r.slot, generation_from(r.generation), r.reason, r.message)
            for r in response.refused
        ),
        freed=tuple(response.freed),
    )


def cap_zero(rank: int, report: cache_pb.ResidencyQueryResponse, asked: int) -> str:
    """The one start-up error of a rank that affords nothing (rule B7)."""
    terms = report.terms
    return cap_zero_sentence(
        rank,
        SizingTerms(
            quota_bytes=terms.quota_bytes,
            slot_bytes=terms.slot_bytes,
            reserved_slots=terms.reserved_slots,
            fixed_bytes=terms.fixed_bytes,
            kv_sequence_bytes=terms.kv_sequence_bytes,
        ),
        asked,
    )
