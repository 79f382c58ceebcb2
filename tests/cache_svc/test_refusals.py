"""Every refusal of a rank, in one table: its reason, one sentence, and a rank that is as it was before."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from cache_svc.core.effects import BuildPool
from cache_svc.core.ledger import Owner
from cache_svc.core.orders import BindOrder, Opening, ReleaseOrder
from cache_svc.core.rank import RankCore
from stateroom.residency.answer import Answer, Bounded, Pending
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import SizingTerms

BOOT, LEADER, TERM = "boot-1", "leader-1", 5
R = ErrorReason


def _rank() -> RankCore:
    """Cap 4 of 6 rows built, one reserved: slot 1 bound, 2 being scrubbed, 3 and 4 free, 5 withheld."""
    core = RankCore(BOOT, SizingTerms(quota_bytes=600, slot_bytes=100))
    for keep in core.hear_term(TERM, LEADER):
        core.kept(keep)
    core.commit(TERM, LEADER, BOOT, Bounded(5), 8, 1)
    core.built(BuildPool(6, 600), 1)
    core.commit(TERM, LEADER, BOOT, Bounded(4), 8, 1)
    core.open_stream(Opening(TERM, LEADER))
    core.apply(TERM, LEADER, BOOT, 1, (), (_bind(1, 1), _bind(2, 2), _bind(3, 3)))
    core.apply(TERM, LEADER, BOOT, 2, (ReleaseOrder(2, (TERM, 2)), ReleaseOrder(3, (TERM, 3))), ())
    core.scrubbed((3,))
    return core


def _bind(slot: int, counter: int, term: int = TERM) -> BindOrder:
    return BindOrder(slot, Owner((term, counter), f"q{counter}", "s"))


def _commit(
    agreed: Answer,
    term: int = TERM,
    leader: str = LEADER,
    boot: str = BOOT,
    asked: int = 8,
    reserved: int = 1,
) -> Callable[[RankCore], object]:
    def call(core: RankCore) -> object:
        core.hear_term(term, leader)  # as every message of a leader begins
        return core.commit(term, leader, boot, agreed, asked, reserved)

    return call


def _apply(
    number: int = 3, term: int = TERM, leader: str = LEADER, boot: str = BOOT
) -> Callable[[RankCore], object]:
    return lambda core: core.apply(term, leader, boot, number, (), (_bind(4, 9),))


MESSAGES: dict[str, tuple[ErrorReason, Callable[[RankCore], object]]] = {
    "x08 a lower term": (R.STALE_TERM, lambda core: core.hear_term(4, "leader-0")),
    "d06 a term of another leader": (R.TERM_TAKEN, lambda core: core.hear_term(TERM, "leader-2")),
    "no term": (R.INVALID_REQUEST, lambda core: core.hear_term(0, LEADER)),
    "no leader": (R.INVALID_REQUEST, lambda core: core.hear_term(TERM, "")),
    "x08 a commit of a lower term": (R.STALE_TERM, _commit(Bounded(2), term=4)),
    "d06 a commit of another leader": (R.TERM_TAKEN, _commit(Bounded(2), leader="leader-2")),
    "d01 a commit to an earlier process": (R.WRONG_BOOT_ID, _commit(Bounded(2), boot="boot-0")),
    "b01 a pending agreement": (R.INVALID_REQUEST, _commit(Pending())),
    "nothing asked": (R.INVALID_REQUEST, _commit(Bounded(2), asked=0)),
    "c03 no reserved row": (R.INVALID_REQUEST, _commit(Bounded(2), reserved=0)),
    "b06 more than the quota": (R.QUOTA_EXCEEDED, _commit(Bounded(6))),
    "b08 another number of reserved rows": (R.NUMBERS_DIFFER, _commit(Bounded(2), reserved=2)),
    "d01 a stream to an earlier process": (
        R.WRONG_BOOT_ID,
        lambda core: core.open_stream(Opening(TERM, LEADER, "boot-0")),
    ),
    "d01 a first message with a number": (
        R.SEQUENCE_GAP,
        lambda core: core.open_stream(Opening(TERM, LEADER, sequence_number=3)),
    ),
    "d01 a first message with orders": (
        R.SEQUENCE_GAP,
        lambda core: core.open_stream(Opening(TERM, LEADER, orders_count=1)),
    ),
    "x14 a lost order": (R.SEQUENCE_GAP, _apply(number=4)),
    "d01 an order that came already": (R.SEQUENCE_GAP, _apply(number=2)),
    "d01 an order to an earlier process": (R.WRONG_BOOT_ID, _apply(boot="boot-0")),
    "x08 an order of a lower term": (R.STALE_TERM, _apply(term=4)),
    "d06 an order of another leader": (R.TERM_TAKEN, _apply(leader="leader-2")),
    "d04 an order of a higher term with no stream": (R.SEQUENCE_GAP, _apply(term=6)),
    "b08 a quota of 0": (R.INVALID_REQUEST, lambda core: core.set_quota(0, BOOT)),
    "b08 a quota for an earlier process": (R.WRONG_BOOT_ID, lambda core: core.set_quota(900, "boot-0")),
    "b01 asked for 0": (R.INVALID_REQUEST, lambda core: core.local(0)),
}


def _everything(core: RankCore) -> dict[str, object]:
    ledger = core.ledger
    assert ledger is not None
    facts = {name: value for name, value in vars(core).items() if name != "ledger"}
    return copy.deepcopy({**facts, **{f"ledger.{name}": value for name, value in vars(ledger).items()}})


@pytest.mark.parametrize("name", MESSAGES)
def test_d01_a_refused_message_changes_nothing(name: str) -> None:
    reason, call = MESSAGES[name]
    core = _rank()
    before = _everything(core)
    with pytest.raises(Refused) as refused:
        call(core)
    assert refused.value.reason is reason
    assert "\n" not in refused.value.message
    assert _everything(core) == before


ORDERS: dict[str, tuple[ErrorReason, BindOrder | ReleaseOrder]] = {
    "l08 bind the padding row": (R.SLOT_OUT_OF_RANGE, _bind(0, 9)),
    "b08 bind a withheld slot": (R.SLOT_OUT_OF_RANGE, _bind(5, 9)),
    "b03 bind beyond the rows": (R.SLOT_OUT_OF_RANGE, _bind(6, 9)),
    "l09 bind -1 as the wire has it": (R.SLOT_OUT_OF_RANGE, _bind(2**32 - 1, 9)),
    "l01 bind a bound slot": (R.SLOT_NOT_FREE, _bind(1, 9)),
    "c02 bind a slot that is scrubbed": (R.SLOT_NOT_FREE, _bind(2, 9)),
    "c03 bind with a generation used": (R.STALE_GENERATION, _bind(3, 3)),
    "c03 bind with an older generation": (R.STALE_GENERATION, _bind(3, 9, term=4)),
    "l02 release a slot that is scrubbed": (R.NOT_BOUND, ReleaseOrder(2, (TERM, 2))),
    "l02 release a free slot again": (R.NOT_BOUND, ReleaseOrder(3, (TERM, 3))),
    "l08 release the padding row": (R.NOT_BOUND, ReleaseOrder(0, (TERM, 1))),
    "c03 release another ownership": (R.STALE_GENERATION, ReleaseOrder(1, (TERM, 2))),
    "release beyond the rows": (R.NOT_BOUND, ReleaseOrder(99, (TERM, 1))),
}


@pytest.mark.parametrize("name", ORDERS)
def test_c03_a_refused_order_is_counted_and_changes_no_slot(name: str) -> None:
    reason, order = ORDERS[name]
    core = _rank()
    before = _everything(core)
    binds, releases = ((order,), ()) if isinstance(order, BindOrder) else ((), (order,))
    result = core.apply(TERM, LEADER, BOOT, 3, releases, binds)
    assert [(refusal.slot, refusal.reason) for refusal in result.refused] == [(order.slot, reason)]
    assert (result.freed, result.effects) == ((), ())
    after = _everything(core)
    assert after.pop("ledger.refused_by_reason") == {reason.value: 1}
    before.pop("ledger.refused_by_reason")
    assert (before.pop("_next_number"), after.pop("_next_number")) == (3, 4)  # the message itself was applied
    assert after == before


def test_p06_the_same_slot_twice_in_one_message_is_bound_once() -> None:
    core = _rank()
    result = core.apply(TERM, LEADER, BOOT, 3, (), (_bind(4, 9), _bind(4, 10)))
    assert [(refusal.slot, refusal.reason) for refusal in result.refused] == [(4, R.SLOT_NOT_FREE)]
    assert core.ledger is not None
    assert core.ledger.owners[4].sequence_id == "q9"
    assert core.ledger.check_integrity() == []
