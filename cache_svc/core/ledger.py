"""The slots of one rank: who owns each, and what may be done with it next (rules C1-C5).

    FREE --bind--> BOUND --release--> SCRUBBING --scrubbed--> FREE

Reserved rows (0 .. R-1) are never bound: row 0 is what padding reads and writes. Rows beyond the
agreed seats are withheld. A refused order changes nothing. Slots are plain ints (scenario L10).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stateroom.residency.generation import NO_GENERATION, Generation
from stateroom.residency.reasons import ErrorReason
from stateroom.residency.states import SlotState

__all__ = ["NO_GENERATION", "Generation", "Ledger", "Owner", "Refusal"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a slot."""

    generation: Generation
    sequence_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An order that was not carried out, and why in one sentence."""

    slot: int
    generation: Generation
    reason: ErrorReason
    message: str


class Ledger:
    """`rows` rows, of which `reserved_slots` at the low end; `seats` of the rest may be bound."""

    def __init__(self, rows: int, reserved_slots: int) -> None:
        assert rows > reserved_slots >= 1, f"{rows} rows with {reserved_slots} reserved: no slot is left"
        self.rows = rows
        self.reserved_slots = reserved_slots
        self.seats = rows - reserved_slots
        self.owners: dict[int, Owner] = {}
        self.scrubbing: dict[int, Generation] = {}
        self.newest: dict[int, Generation] = {}  # by slot, for every slot ever bound
        self.highest: Generation = NO_GENERATION
        self.refused_by_reason: Counter[str] = Counter()

    def resize(self, seats: int) -> None:
        """Follows a new agreement: to any number up to the rows that stand, 0 too (rules B3, B8)."""
        assert 0 <= seats <= self.rows - self.reserved_slots, f"{seats} seats in {self.rows} rows"
        self.seats = seats

    # ---- orders ----

    def bind(self, slot: int, owner: Owner) -> Refusal | None:
        """FREE -> BOUND, or the refusal."""
        if not self.reserved_slots <= slot < self.reserved_slots + self.seats:
            last = self.reserved_slots + self.seats - 1
            allowed = f"one of {self.reserved_slots} to {last}" if self.seats else "any"
            return self._refuse(
                slot,
                owner.generation,
                ErrorReason.SLOT_OUT_OF_RANGE,
                f"slot {slot} is not {allowed} that the agreed cap of {self.seats} allows: bind a slot inside the cap",
            )
        if slot in self.owners or slot in self.scrubbing:
            state = "bound" if slot in self.owners else "being scrubbed"
            return self._refuse(
                slot,
                owner.generation,
                ErrorReason.SLOT_NOT_FREE,
                f"slot {slot} is {state}: read the ledger again",
            )
        newest = self.newest.get(slot, NO_GENERATION)
        if owner.generation <= newest:
            return self._refuse(
                slot,
                owner.generation,
                ErrorReason.STALE_GENERATION,
                f"generation {owner.generation} of slot {slot} is not newer than {newest}: take a newer one",
            )
        self.owners[slot] = owner
        self.newest[slot] = owner.generation
        self.highest = max(self.highest, owner.generation)
        return None

    def release(self, slot: int, generation: Generation) -> Refusal | None:
        """BOUND -> SCRUBBING by the owner's generation, or the refusal: a slot is given back once (C3)."""
        owner = self.owners.get(slot)
        if owner is None:
            return self._refuse(
                slot, generation, ErrorReason.NOT_BOUND, f"slot {slot} has no owner: it was released before"
            )
        if owner.generation != generation:
            return self._refuse(
                slot,
                generation,
                ErrorReason.STALE_GENERATION,
                f"slot {slot} is owned by generation {owner.generation}, not {generation}: the handle is stale",
            )
        del self.owners[slot]
        self.scrubbing[slot] = generation
        return None

    def scrubbed(self, slot: int) -> None:
        """SCRUBBING -> FREE: the row is zero."""
        del self.scrubbing[slot]

    def _refuse(self, slot: int, generation: Generation, reason: ErrorReason, message: str) -> Refusal:
        self.refused_by_reason[reason.value] += 1
        return Refusal(slot, generation, reason, message)

    # ---- reading ----

    def state_of(self, slot: int) -> SlotState:
        """What a slot is now."""
        if slot in self.owners:
            return SlotState.BOUND
        if slot in self.scrubbing:
            return SlotState.SCRUBBING
        if slot < self.reserved_slots:
            return SlotState.RESERVED
        return SlotState.FREE if slot < self.reserved_slots + self.seats else SlotState.WITHHELD

    def counts(self) -> dict[SlotState, int]:
        """Slots by state, from sizes: no scan of the rows. A held slot beyond the seats is counted as held."""
        beyond = self.reserved_slots + self.seats
        held_beyond = 0
        if beyond < self.rows:
            held_beyond = sum(s >= beyond for s in self.owners) + sum(s >= beyond for s in self.scrubbing)
        bound, scrubbing = len(self.owners), len(self.scrubbing)
        return {
            SlotState.FREE: self.seats - (bound + scrubbing - held_beyond),
            SlotState.BOUND: bound,
            SlotState.QUARANTINED: 0,
            SlotState.SCRUBBING: scrubbing,
            SlotState.RESERVED: self.reserved_slots,
            SlotState.WITHHELD: self.rows - beyond - held_beyond,
        }

    def check_integrity(self) -> list[str]:
        """One sentence for each broken invariant (rule C5); costs a scan of the rows."""
        errors = []
        counts = self.counts()
        if sum(counts.values()) != self.rows or min(counts.values()) < 0:
            errors.append(
                f"slots by state { ({s.value: n for s, n in counts.items()}) } do not add up to {self.rows} rows"
            )
        scanned = Counter(self.state_of(slot) for slot in range(self.rows))
        if any(scanned[state] != n for state, n in counts.items()):
            errors.append(f"a scan finds {dict(scanned)} and {counts} are counted")
        both = self.owners.keys() & self.scrubbing.keys()
        if both:
            errors.append(f"slots {sorted(both)} are bound and scrubbed at once")
        reserved = [s for s in (*self.owners, *self.scrubbing) if s < self.reserved_slots]
        if reserved:
            errors.append(f"reserved slots {reserved} are in use")
        stale = [s for s, owner in self.owners.items() if owner.generation != self.newest[s]]
        if stale:
            errors.append(f"slots {stale} are owned by an old generation")
        return errors
