"""Messages to core calls and core values to messages; nothing is decided here."""

from __future__ import annotations

from cache_svc.core.ledger import NO_GENERATION, Ledger, Owner
from cache_svc.core.orders import Applied, BindOrder, Opening, ReleaseOrder
from cache_svc.core.rank import RankCore
from cache_svc.settings import Settings
from stateroom.residency.layout import RowLayout
from stateroom.residency.states import SlotState
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom.wire_words import answer_to, generation_from, generation_to, slot_state_to

__all__ = [
    "applied",
    "binds_from",
    "counts_to",
    "ledger_to",
    "opening_from",
    "page_to",
    "pool_layout",
    "releases_from",
    "residency_to",
]


def opening_from(message: pb.BindRequest) -> Opening:
    """The first message of a stream."""
    return Opening(
        message.term,
        message.leader_boot_id,
        message.rank_boot_id,
        message.sequence_number,
        len(message.releases) + len(message.binds),
    )


def releases_from(message: pb.BindRequest) -> tuple[ReleaseOrder, ...]:
    """Releases of one ordered message."""
    return tuple(ReleaseOrder(o.slot, generation_from(o.generation)) for o in message.releases)


def binds_from(message: pb.BindRequest) -> tuple[BindOrder, ...]:
    """Binds of one ordered message."""
    return tuple(
        BindOrder(o.slot, Owner(generation_from(o.generation), o.sequence_id, o.session_id))
        for o in message.binds
    )


def applied(boot_id: str, term: int, result: Applied) -> pb.BindResponse:
    """Confirms one ordered message."""
    response = pb.BindResponse(
        rank_boot_id=boot_id, term=term, applied_sequence_number=result.sequence_number, freed=result.freed
    )
    for refusal in result.refused:
        response.refused.add(
            slot=refusal.slot,
            generation=generation_to(refusal.generation),
            reason=refusal.reason.value,
            message=refusal.message,
        )
    return response


def _entry(ledger: Ledger, slot: int) -> pb.LedgerEntry:
    owner = ledger.owners.get(slot)
    return pb.LedgerEntry(
        slot=slot,
        state=slot_state_to(ledger.state_of(slot)),
        generation=generation_to(ledger.newest.get(slot, NO_GENERATION)),
        sequence_id=owner.sequence_id if owner else "",
        session_id=owner.session_id if owner else "",
    )


def ledger_to(ledger: Ledger, highest_term: int) -> pb.Ledger:
    """Every slot that is not plainly free."""
    return pb.Ledger(
        rows=ledger.rows,
        reserved_slots=ledger.reserved_slots,
        entries=[_entry(ledger, slot) for slot in (*ledger.owners, *ledger.scrubbing)],
        highest_term=highest_term,
        highest_generation=generation_to(ledger.highest),
    )


def page_to(ledger: Ledger, start: int, size: int) -> pb.ListSlotsResponse:
    """Rows start .. start + size - 1, free ones too."""
    end = min(start + size, ledger.rows)
    return pb.ListSlotsResponse(
        slots=[_entry(ledger, slot) for slot in range(start, end)],
        next_page_token=str(end) if end < ledger.rows else "",
        counts=counts_to(ledger),
        integrity_errors=ledger.check_integrity(),
        refused_by_reason=dict(ledger.refused_by_reason),
    )


def counts_to(ledger: Ledger | None) -> types.SlotCounts:
    """Slots by state; all 0 before a commit."""
    if ledger is None:
        return types.SlotCounts()
    counts = ledger.counts()
    return types.SlotCounts(
        rows=ledger.rows,
        free=counts[SlotState.FREE],
        bound=counts[SlotState.BOUND],
        quarantined=counts[SlotState.QUARANTINED],
        scrubbing=counts[SlotState.SCRUBBING],
        reserved=counts[SlotState.RESERVED],
        withheld=counts[SlotState.WITHHELD],
    )


def pool_layout(layout: RowLayout, rows: int, reserved_slots: int) -> pb.PoolLayout:
    """What a worker needs to make its views."""
    return pb.PoolLayout(
        version=1,
        tensors=[
            pb.StateTensor(
                layer=t.spec.layer,
                name=t.spec.name,
                shape=t.spec.shape,
                dtype=t.spec.dtype,
                offset_bytes=t.offset_bytes,
            )
            for t in layout.tensors
        ],
        row_stride_bytes=layout.row_stride_bytes,
        rows=rows,
        reserved_slots=reserved_slots,
        hash=layout.hash,
    )


def residency_to(
    core: RankCore, settings: Settings, asked: int, attached_count: int
) -> pb.ResidencyQueryResponse:
    """The local answer beside the agreed one, with every term of the sum (rules B1, B3)."""
    state, parallel = settings.state, settings.parallel
    return pb.ResidencyQueryResponse(
        place=pb.RankPlace(
            rank=parallel.rank,
            tp_size=parallel.tp_size,
            tp_rank=parallel.tp_rank,
            pp_size=parallel.pp_size,
            pp_rank=parallel.pp_rank,
        ),
        boot_id=core.boot_id,
        local=answer_to(core.local(asked)),
        agreed=answer_to(core.agreement),
        terms=pb.SizingTerms(
            quota_bytes=core.terms.quota_bytes,
            fixed_bytes=core.terms.fixed_bytes,
            slot_bytes=state.slot_bytes,
            conv_bytes=state.conv_bytes,
            recurrent_bytes=state.recurrent_bytes,
            padding_bytes=state.padding_bytes,
            auxiliary_bytes=state.auxiliary_bytes,
            reserved_slots=core.terms.reserved_slots,
            kv_sequence_bytes=core.terms.kv_sequence_bytes,
            kv_token_bytes=state.kv_token_bytes if state.kv_error is None else 0,
            recurrent_layers_count=state.recurrent_layers_count,
            attention_layers_count=state.attention_layers_count,
            ssm_dtype=pb.SourcedDtype(dtype=state.ssm_dtype.dtype, source=state.ssm_dtype.source),
            conv_dtype=pb.SourcedDtype(dtype=state.conv_dtype.dtype, source=state.conv_dtype.source),
            guarantee=core.terms.guarantee,
        ),
        slots=counts_to(core.ledger),
        highest_term=core.term,
        asked=asked,
        spare_bytes=max(0, core.spare_bytes()),
        attached_workers_count=attached_count,
    )
