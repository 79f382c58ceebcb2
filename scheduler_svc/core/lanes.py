"""The queue, in lanes: waiters that always get the same verdict stand in one lane (rules A4, A7).

A lane is (first need, demand, tenant, size class of KV pages); what the engine itself is not ready for
stands in a lane apart. Inside a lane the order
is that of `Sequence.order`. Only heads of lanes are ever looked at, so a pass costs the number of
lanes, which is small and bounded, and never the number of waiters.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from scheduler_svc.core.reason_clock import ClosedSpell, ReasonClock
from scheduler_svc.core.sequence import Sequence
from stateroom.residency.reasons import WaitReason

__all__ = ["Lane", "LaneKey", "Lanes"]

LaneKey = tuple[str, int, str, int]  # "tokens", "transfer" or "engine"; demand; tenant; KV size class

_order = attrgetter("order")
_COMPACT_AT = 1024  # dead entries at the front before the list is cut


class Lane:
    """Waiters with one verdict. A sorted list with a moving head: join at the end and leave at the
    front cost no move of the others."""

    def __init__(self, number: int, key: LaneKey) -> None:
        self.number = number
        self.key = key
        self.clock = ReasonClock()
        self.count = 0
        self._queue: list[Sequence] = []
        self._head = 0

    def __repr__(self) -> str:
        return f"Lane({self.number}, {self.key}, {self.count} waiting)"

    @property
    def head(self) -> Sequence | None:
        """The first waiter."""
        while self._head < len(self._queue):
            first = self._queue[self._head]
            if first.lane == self.number:
                return first
            self._drop_front()
        return None

    def _drop_front(self) -> None:
        self._head += 1
        if self._head >= _COMPACT_AT and self._head * 2 >= len(self._queue):
            del self._queue[: self._head]
            self._head = 0

    def join(self, sequence: Sequence, now_ms: int) -> None:
        """Takes its place by order."""
        insort(self._queue, sequence, lo=self._head, key=_order)
        self.count += 1
        sequence.lane = self.number
        sequence.joined_ms = now_ms
        sequence.marks = self.clock.read(now_ms)

    def leave(self, sequence: Sequence, now_ms: int) -> None:
        """Leaves from anywhere, with its milliseconds by reason added up."""
        assert sequence.lane == self.number, f"{sequence.id} is in lane {sequence.lane}, not {self.number}"
        for reason, ms in self.clock.read(now_ms).items():
            part_ms = ms - sequence.marks.get(reason, 0)
            if part_ms:
                sequence.ms_by_reason[reason] = sequence.ms_by_reason.get(reason, 0) + part_ms
        sequence.spells.extend(self.clock.since(sequence.joined_ms, now_ms, sequence.first_spell))
        sequence.lane = 0
        sequence.first_spell = None
        sequence.passed_over_ms = None
        self.count -= 1
        if self._head < len(self._queue) and self._queue[self._head] is sequence:
            self._drop_front()
        else:
            del self._queue[self._index(sequence)]
        if not self.count:
            self.clock.change(None, "", now_ms)

    def _index(self, sequence: Sequence) -> int:
        index = bisect_left(self._queue, sequence.order, lo=self._head, key=_order)
        assert self._queue[index] is sequence, f"{sequence.id} is not where its order says"
        return index

    def ahead_of(self, order: tuple[int, int, int]) -> int:
        """Waiters before this order."""
        return bisect_left(self._queue, order, lo=self._head, key=_order) - self._head

    def waiters(self) -> list[Sequence]:
        """All of them in order; for full lists, never in a step."""
        return [s for s in self._queue[self._head :] if s.lane == self.number]

    def ms_by_reason(self, sequence: Sequence, now_ms: int) -> dict[WaitReason, int]:
        """What a waiter's time is made of up to now."""
        ms = dict(sequence.ms_by_reason)
        for reason, total_ms in self.clock.read(now_ms).items():
            part_ms = total_ms - sequence.marks.get(reason, 0)
            if part_ms:
                ms[reason] = ms.get(reason, 0) + part_ms
        return ms

    def spells_of(self, sequence: Sequence, now_ms: int) -> list[ClosedSpell]:
        """The story of a waiter up to now."""
        return [*sequence.spells, *self.clock.since(sequence.joined_ms, now_ms, sequence.first_spell)]


class Lanes:
    """All lanes of a group. Numbers start at 1 and are never reused."""

    def __init__(self) -> None:
        self._by_key: dict[LaneKey, Lane] = {}
        self._by_number: dict[int, Lane] = {}
        self._numbers = 0
        self.waiting_count = 0

    def lane_of(self, sequence: Sequence) -> Lane:
        """The lane it stands in."""
        return self._by_number[sequence.lane]

    def find(self, number: int) -> Lane | None:
        """A lane by its number, None once nobody waits in it any more."""
        return self._by_number.get(number)

    def verdict_of(self, number: int) -> tuple[WaitReason, str] | None:
        """Reason and detail of a lane; every lane has one after a pass. None: nobody waits in it any more."""
        lane = self._by_number.get(number)
        spell = lane.clock.spell if lane is not None else None
        return (spell.reason, spell.detail) if spell is not None else None

    @property
    def lanes(self) -> list[Lane]:
        """Lanes with waiters, oldest lane first."""
        return list(self._by_key.values())

    def join(self, sequence: Sequence, now_ms: int, kv_class: int) -> Lane:
        """Puts a sequence where it belongs."""
        key = self._key(sequence, kv_class)
        lane = self._by_key.get(key)
        if lane is None:
            self._numbers += 1
            lane = self._by_key[key] = Lane(self._numbers, key)
            self._by_number[lane.number] = lane
        lane.join(sequence, now_ms)
        self.waiting_count += 1
        return lane

    def leave(self, sequence: Sequence, now_ms: int) -> None:
        """Takes a sequence out of its lane."""
        lane = self._by_number[sequence.lane]
        lane.leave(sequence, now_ms)
        self.waiting_count -= 1
        if not lane.count:  # lanes are as many as there are kinds of waiters, not as there ever were
            del self._by_number[lane.number], self._by_key[lane.key]

    def ahead_of(self, sequence: Sequence) -> int:
        """Waiters of all lanes that come before it in order."""
        return sum(lane.ahead_of(sequence.order) for lane in self._by_key.values())

    @staticmethod
    def _key(sequence: Sequence, kv_class: int) -> LaneKey:
        arrival = sequence.arrival
        if sequence.engine_word:
            return ("engine", arrival.demand, arrival.tenant, 0)
        transfers = (
            arrival.kind == "generation_init" or sequence.state_kept
        )  # its state arrives, no tokens do
        return ("transfer" if transfers else "tokens", arrival.demand, arrival.tenant, kv_class)
