"""The scheduler's picture of all ranks' ledgers: which slot numbers are free on every one (rule C1).

One slot number serves the group, so a slot is grantable when no rank holds or scrubs it. A bit a rank
in one integer a slot says who does; the lowest grantable number is taken first, so that runs repeat.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from scheduler_svc.core.events import Generation, LedgerEntry
from stateroom.residency.states import SlotState

__all__ = ["SlotMirror"]


class SlotMirror:
    """Slots reserved .. reserved + seats - 1 of the group: the seats that every rank enforces by now."""

    def __init__(self, ranks_count: int, reserved_slots: int) -> None:
        self._all_ranks = (1 << ranks_count) - 1
        self.reserved_slots = reserved_slots
        self.seats = 0
        self._busy: list[int] = []  # by slot: bit r set while rank r has it not free
        self._grantable: list[int] = []  # heap
        self._scrubbing: list[set[int]] = [set() for _ in range(ranks_count)]
        self.foreign: dict[int, dict[int, LedgerEntry]] = {}  # slot -> rank -> entry nobody claims yet

    def resize(self, seats: int) -> None:
        """Follows the agreed number; slots beyond it are withheld, held ones stay held (rule B8)."""
        self.seats = seats
        rows = self.reserved_slots + seats
        if rows > len(self._busy):
            self._busy.extend([0] * (rows - len(self._busy)))
        self._rebuild()

    def _rebuild(self) -> None:
        rows = self.reserved_slots + self.seats
        self._grantable = [s for s in range(self.reserved_slots, rows) if not self._busy[s]]
        heapify(self._grantable)

    @property
    def grantable_count(self) -> int:
        """Slots that are free on every rank."""
        return len(self._grantable)

    @property
    def foreign_count(self) -> int:
        """Slots that a ledger shows as held by nobody we know (rules D3, C4); they count as held."""
        return len(self.foreign)

    def take(self, count: int) -> tuple[int, ...]:
        """The lowest grantable slots, now busy on every rank."""
        slots = tuple(heappop(self._grantable) for _ in range(count))
        for slot in slots:
            self._busy[slot] = self._all_ranks
        return slots

    def claim(self, slots: tuple[int, ...], generation: Generation) -> None:
        """A session proves that it holds these: the entries of this ownership have an owner now."""
        for slot in slots:
            for rank, entry in list(self.foreign.get(slot, {}).items()):
                if entry.generation == generation:
                    self._drop_foreign(slot, rank)

    def releasing(self, rank: int, slot: int) -> None:
        """A release was sent: the rank scrubs, then says freed."""
        self._scrubbing[rank].add(slot)

    def freed(self, rank: int, slot: int) -> None:
        """A rank has the slot free again."""
        self._scrubbing[rank].discard(slot)
        if slot >= len(self._busy):
            return
        before = self._busy[slot]
        self._busy[slot] = before & ~(1 << rank)
        self._drop_foreign(slot, rank)
        if before and not self._busy[slot] and self.reserved_slots <= slot < self.reserved_slots + self.seats:
            heappush(self._grantable, slot)

    def _drop_foreign(self, slot: int, rank: int) -> None:
        claims = self.foreign.get(slot)
        if claims is not None:
            claims.pop(rank, None)
            if not claims:
                del self.foreign[slot]

    def load(self, rank: int, rows: int, entries: tuple[LedgerEntry, ...]) -> None:
        """Replaces the picture of one rank by its ledger (rule D1)."""
        if rows > len(self._busy):
            self._busy.extend([0] * (rows - len(self._busy)))
        bit = 1 << rank
        self._busy = [mask & ~bit for mask in self._busy]
        self._scrubbing[rank] = {e.slot for e in entries if e.state is not SlotState.BOUND}
        for slot in [s for s, claims in self.foreign.items() if rank in claims]:
            self._drop_foreign(slot, rank)
        for entry in entries:
            self._busy[entry.slot] |= bit
        self._rebuild()

    def slowest_scrubbing(self) -> tuple[int, int]:
        """The rank that scrubs the most slots, and how many (reason SCRUBBING)."""
        counts = [len(s) for s in self._scrubbing]
        most = max(counts, default=0)
        return counts.index(most), most
