"""What a rank refuses, with its reason; nothing is changed by a refusal (rules B3, B6, B8, C1, D1, D6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache_svc.core.effects import BuildPool, KeepTerm, ReplaceLeader, Scrub
from cache_svc.core.ledger import Owner
from cache_svc.core.orders import BindOrder, Opening, ReleaseOrder
from cache_svc.core.rank import ROWS_MAX, RankCore
from stateroom.residency.answer import Bounded, Pending, Unbounded
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import SizingTerms

BOOT, LEADER = "boot-1", "leader-1"
OPENING = Opening(1, LEADER)


def _core(quota_slots: int = 5, slot_bytes: int = 100) -> RankCore:
    """A rank that follows term 1 and has no agreement yet."""
    core = RankCore(BOOT, SizingTerms(quota_bytes=quota_slots * 100, slot_bytes=slot_bytes))
    _follow(core, 1, LEADER)
    return core


def _follow(core: RankCore, term: int, leader: str) -> tuple[object, ...]:
    """What the driver does: keep, then obey."""
    return tuple(effect for keep in core.hear_term(term, leader) for effect in core.kept(keep))


def _committed(cap: int = 4, slot_bytes: int = 100) -> RankCore:
    core = _core(slot_bytes=slot_bytes)
    effects = core.commit(1, LEADER, BOOT, Bounded(cap), 8, 1)
    build = next(e for e in effects if isinstance(e, BuildPool))
    core.built(build, 1)
    core.open_stream(OPENING)
    return core


def _bind(
    core: RankCore, number: int, slot: int, counter: int, term: int = 1, leader: str = LEADER
) -> object:
    order = BindOrder(slot, Owner((term, counter), f"q{counter}", "s"))
    return core.apply(term, leader, BOOT, number, (), (order,))


def _reason(call: Callable[[], object]) -> ErrorReason:
    with pytest.raises(Refused) as refused:
        call()
    assert refused.value.message.count(".") <= 2  # one sentence
    return refused.value.reason


def test_b04_a_commit_builds_exactly_cap_and_reserved_rows() -> None:
    core = _core()
    assert core.commit(1, LEADER, BOOT, Bounded(4), 8, 1) == (BuildPool(5, 500),)
    assert core.ledger is None  # nothing stands before it is built
    assert isinstance(core.agreement, Pending)  # and nothing is said to be agreed
    core.built(BuildPool(5, 500), 1)
    assert core.commit(1, LEADER, BOOT, Bounded(4), 8, 1) == ()  # repeated: the same again


def test_b01_unbounded_builds_what_was_asked() -> None:
    core = _core(quota_slots=9)
    assert core.local(8) == Unbounded()
    assert BuildPool(9, 900) in core.commit(1, LEADER, BOOT, Unbounded(), 8, 1)


def test_b06_an_agreement_never_exceeds_the_quota() -> None:
    core = _core(quota_slots=5)
    assert _reason(lambda: core.commit(1, LEADER, BOOT, Bounded(5), 8, 1)) is ErrorReason.QUOTA_EXCEEDED
    assert core.ledger is None


def test_b08_it_falls_to_any_number_and_rises_to_the_rows_built() -> None:
    core = _committed(cap=4)
    core.commit(1, LEADER, BOOT, Bounded(2), 8, 1)
    assert core.ledger is not None
    assert core.ledger.seats == 2
    core.commit(1, LEADER, BOOT, Bounded(4), 8, 1)
    core.terms = SizingTerms(quota_bytes=10_000, slot_bytes=100)
    assert _reason(lambda: core.commit(1, LEADER, BOOT, Bounded(5), 8, 1)) is ErrorReason.NUMBERS_DIFFER
    assert core.ledger.rows == 5


def test_b07_nothing_is_built_for_an_agreement_of_0() -> None:
    core = _core()
    assert _reason(lambda: core.commit(1, LEADER, BOOT, Bounded(0), 8, 1)) is ErrorReason.NOTHING_FITS
    assert _reason(lambda: core.commit(1, LEADER, BOOT, Pending(), 8, 1)) is ErrorReason.INVALID_REQUEST


@pytest.mark.parametrize("slot", [0, 5, 6, -1 % 2**32])
def test_b03_a_bind_beyond_the_agreed_cap_is_refused_on_an_attention_only_rank(slot: int) -> None:
    """Sent to that rank alone; it has no bytes and keeps the ledger all the same. 0 and -1 too (L08, L09)."""
    core = _committed(cap=4, slot_bytes=0)
    result = _bind(core, 1, slot, 1)
    assert [r.reason for r in result.refused] == [ErrorReason.SLOT_OUT_OF_RANGE]  # type: ignore[attr-defined]
    assert core.ledger is not None
    assert not core.ledger.owners


def test_s08_an_attention_only_rank_frees_at_once() -> None:
    core = _committed(slot_bytes=0)
    _bind(core, 1, 1, 1)
    result = core.apply(1, LEADER, BOOT, 2, (ReleaseOrder(1, (1, 1)),), ())
    assert (result.freed, result.effects) == ((1,), ())


def test_c02_a_released_row_is_scrubbed_before_it_is_free() -> None:
    core = _committed()
    _bind(core, 1, 1, 1)
    result = core.apply(1, LEADER, BOOT, 2, (ReleaseOrder(1, (1, 1)),), ())
    assert (result.freed, result.effects) == ((), (Scrub((1,)),))
    again = _bind(core, 3, 1, 2)
    assert [r.reason for r in again.refused] == [ErrorReason.SLOT_NOT_FREE]  # type: ignore[attr-defined]
    assert core.scrubbed((1,)) == (1,)
    assert not _bind(core, 4, 1, 3).refused  # type: ignore[attr-defined]


def test_d01_gaps_and_other_boot_ids_change_nothing() -> None:
    core = _committed()
    assert _reason(lambda: _bind(core, 2, 1, 1)) is ErrorReason.SEQUENCE_GAP
    order = BindOrder(1, Owner((1, 1), "q", "s"))
    assert _reason(lambda: core.apply(1, LEADER, "boot-0", 1, (), (order,))) is ErrorReason.WRONG_BOOT_ID
    assert not _bind(core, 1, 1, 1).refused  # type: ignore[attr-defined]


def test_x14_order_8_is_lost_and_9_is_refused_until_the_ledger_was_read_again() -> None:
    core = _committed()
    for number in range(1, 8):
        core.apply(1, LEADER, BOOT, number, (), ())
    assert _reason(lambda: _bind(core, 9, 1, 9)) is ErrorReason.SEQUENCE_GAP
    core.open_stream(OPENING)
    assert not _bind(core, 1, 1, 9).refused  # type: ignore[attr-defined]


def test_x08_a_lower_term_is_refused_and_a_higher_one_replaces_the_leader() -> None:
    core = _committed()
    _bind(core, 1, 1, 1)
    assert core.hear_term(2, "leader-2") == (KeepTerm(2, "leader-2"),)
    assert core.term == 1  # it is obeyed only once it is kept (rule D1)
    assert _follow(core, 2, "leader-2") == (ReplaceLeader("term 2 leads now"),)
    assert _reason(lambda: _bind(core, 2, 2, 2)) is ErrorReason.STALE_TERM
    assert _reason(lambda: core.open_stream(OPENING)) is ErrorReason.STALE_TERM
    assert core.ledger is not None
    assert list(core.ledger.owners) == [1]  # the frozen leader's release would change nothing


def test_d06_one_term_belongs_to_one_leader() -> None:
    core = _committed()
    assert _reason(lambda: core.hear_term(1, "another")) is ErrorReason.TERM_TAKEN
    assert _reason(lambda: core.hear_term(0, LEADER)) is ErrorReason.INVALID_REQUEST


def test_d01_no_stream_before_a_commit() -> None:
    assert _reason(lambda: _core().open_stream(OPENING)) is ErrorReason.NOT_COMMITTED


@pytest.mark.parametrize(
    "opening",
    [Opening(1, LEADER, sequence_number=7), Opening(1, LEADER, orders_count=1)],
    ids=["a number", "an order"],
)
def test_d01_the_first_message_of_a_stream_carries_no_orders(opening: Opening) -> None:
    """They would come before the ledger was read, and were dropped in silence once."""
    assert _reason(lambda: _committed().open_stream(opening)) is ErrorReason.SEQUENCE_GAP


def test_d01_a_stream_that_is_opened_for_an_earlier_process_is_refused() -> None:
    opening = Opening(1, LEADER, rank_boot_id="boot-0")
    assert _reason(lambda: _committed().open_stream(opening)) is ErrorReason.WRONG_BOOT_ID


def test_a_ledger_has_a_largest_size_where_no_quota_bounds_it() -> None:
    core = _core(slot_bytes=0)
    assert (
        _reason(lambda: core.commit(1, LEADER, BOOT, Unbounded(), ROWS_MAX, 1)) is ErrorReason.INVALID_REQUEST
    )
    assert core.commit(1, LEADER, BOOT, Unbounded(), ROWS_MAX - 1, 1) == (BuildPool(ROWS_MAX, 0),)
