"""The ledger of a rank beside a naive model: the same orders, the same refusals, the same counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cache_svc.core.ledger import Ledger, Owner
from stateroom.residency.reasons import ErrorReason
from stateroom.residency.states import SlotState

ROWS, RESERVED = 7, 2


class NaiveLedger:
    """A list of states; every question is answered by a scan."""

    def __init__(self) -> None:
        self.state = ["free"] * ROWS
        self.generation = [(0, 0)] * ROWS
        self.seats = ROWS - RESERVED

    def bind(self, slot: int, generation: tuple[int, int]) -> ErrorReason | None:
        if not RESERVED <= slot < RESERVED + self.seats:
            return ErrorReason.SLOT_OUT_OF_RANGE
        if self.state[slot] != "free":
            return ErrorReason.SLOT_NOT_FREE
        if generation <= self.generation[slot]:
            return ErrorReason.STALE_GENERATION
        self.state[slot], self.generation[slot] = "bound", generation
        return None

    def release(self, slot: int, generation: tuple[int, int]) -> ErrorReason | None:
        if not 0 <= slot < ROWS or self.state[slot] != "bound":
            return ErrorReason.NOT_BOUND
        if self.generation[slot] != generation:
            return ErrorReason.STALE_GENERATION
        self.state[slot] = "scrubbing"
        return None

    def counts(self) -> dict[SlotState, int]:
        found = dict.fromkeys(SlotState, 0)
        for slot in range(ROWS):
            state = self.state[slot]
            if state == "bound":
                found[SlotState.BOUND] += 1
            elif state == "scrubbing":
                found[SlotState.SCRUBBING] += 1
            elif slot < RESERVED:
                found[SlotState.RESERVED] += 1
            else:
                found[SlotState.FREE if slot < RESERVED + self.seats else SlotState.WITHHELD] += 1
        return found


_SLOT = st.integers(-2, ROWS + 1)
_GENERATION = st.tuples(st.integers(1, 2), st.integers(1, 6))
_ORDERS = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), _SLOT, _GENERATION),
        st.tuples(st.just("release"), _SLOT, _GENERATION),
        st.tuples(st.just("scrubbed"), _SLOT, _GENERATION),
        st.tuples(st.just("resize"), st.integers(1, ROWS - RESERVED), _GENERATION),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_ORDERS)
def test_c05_the_ledger_does_what_the_naive_one_does(orders: list[tuple[str, int, tuple[int, int]]]) -> None:
    ledger, naive = Ledger(ROWS, RESERVED), NaiveLedger()
    for kind, slot, generation in orders:
        if kind == "bind":
            refusal = ledger.bind(slot, Owner(generation, "q", "s"))
            assert (refusal.reason if refusal else None) == naive.bind(slot, generation)
        elif kind == "release":
            refusal = ledger.release(slot, generation)
            assert (refusal.reason if refusal else None) == naive.release(slot, generation)
        elif kind == "resize":
            ledger.resize(slot)
            naive.seats = slot
        elif 0 <= slot < ROWS and naive.state[slot] == "scrubbing":
            ledger.scrubbed(slot)
            naive.state[slot] = "free"
        assert ledger.check_integrity() == []
        assert ledger.counts() == naive.counts()


def test_l02_a_slot_is_given_back_once_and_a_stale_release_changes_nothing() -> None:
    ledger = Ledger(ROWS, RESERVED)
    assert ledger.bind(3, Owner((1, 1), "a", "s")) is None
    assert ledger.release(3, (1, 1)) is None
    second = ledger.release(3, (1, 1))
    assert second is not None
    assert second.reason is ErrorReason.NOT_BOUND
    ledger.scrubbed(3)
    assert ledger.bind(3, Owner((1, 2), "b", "s")) is None
    stale = ledger.release(3, (1, 1))
    assert stale is not None
    assert stale.reason is ErrorReason.STALE_GENERATION
    assert ledger.owners[3].sequence_id == "b"
    assert dict(ledger.refused_by_reason) == {"NOT_BOUND": 1, "STALE_GENERATION": 1}


def test_l08_reserved_rows_are_never_bound() -> None:
    """S16 too: 17 rows with one reserved are 16 usable, not 15."""
    ledger = Ledger(17, 1)
    bound = [slot for slot in range(17) if ledger.bind(slot, Owner((1, slot + 1), f"q{slot}", "s")) is None]
    assert bound == list(range(1, 17))
    assert all(type(slot) is int for slot in ledger.owners)  # scenario L10


def test_b08_a_smaller_cap_withholds_rows_and_ends_no_owner() -> None:
    ledger = Ledger(6, 1)
    for slot in range(1, 6):
        assert ledger.bind(slot, Owner((1, slot), f"q{slot}", "s")) is None
    ledger.resize(2)
    assert ledger.counts()[SlotState.BOUND] == 5
    refusal = ledger.bind(4, Owner((1, 9), "new", "s"))
    assert refusal is not None
    assert refusal.reason is ErrorReason.SLOT_OUT_OF_RANGE
    assert ledger.release(5, (1, 5)) is None
    ledger.scrubbed(5)
    assert ledger.counts()[SlotState.WITHHELD] == 1
    assert ledger.check_integrity() == []


def test_l22_a_lost_slot_is_named() -> None:
    ledger = Ledger(5, 1)
    assert ledger.bind(2, Owner((1, 1), "a", "s")) is None
    ledger.scrubbing[2] = (1, 1)  # a fault: bound and scrubbed at once
    assert any("slots [2] are bound and scrubbed at once" in error for error in ledger.check_integrity())
