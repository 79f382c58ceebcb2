"""The agreement: MIN over all expected ranks, in slots (rule B2), and what follows from it.

Everything that is a number of sequences (seats, pool rows, warm-up batches) is derived from one
`Agreement` (rule B4), so that no two parties can disagree about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stateroom.residency.answer import Answer, Bounded, Pending, Unbounded

__all__ = [
    "Agreement",
    "RunningSeats",
    "agree",
    "numbers_differ_sentence",
    "seats_while_running",
    "truncate_warmup",
]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a group agreed on.

    `answer` is the MIN; `limiting_ranks` those whose local answer is the MIN (for a pending group:
    the pending ones), in rank order; `asked` is max batch size x stages in flight.
    """

    answer: Answer
    asked: int
    limiting_ranks: tuple[int, ...]

    @property
    def seats(self) -> int:
        """Sequences that may be resident: the bound, `asked` where unbounded, 0 while pending."""
        match self.answer:
            case Bounded(slots_count):
                return slots_count
            case Unbounded():
                return self.asked
            case Pending():
                return 0

    def rows(self, reserved_slots: int) -> int:
        """Rows of every rank's ledger, and of its pool where it has recurrent layers (rules B1, B3)."""
        return self.seats + reserved_slots


def agree(local_by_rank: Mapping[int, Answer], asked: int) -> Agreement:
    """MIN over ranks, never above `asked` (scenario S19); order of ranks does not matter.

    An empty group has nobody to hear from: pending, not unbounded.
    """
    assert asked > 0, f"asked {asked}: at least one sequence must be asked for"
    pending = tuple(sorted(r for r, answer in local_by_rank.items() if isinstance(answer, Pending)))
    if pending or not local_by_rank:
        who = ", ".join(str(r) for r in pending) or "no rank is expected"
        return Agreement(Pending(f"waiting for rank {who}" if pending else who), asked, pending)
    bounds = {r: a.slots_count for r, a in local_by_rank.items() if isinstance(a, Bounded)}
    least = min(bounds.values(), default=asked)
    if least >= asked:
        return Agreement(Unbounded(), asked, ())
    return Agreement(Bounded(least), asked, tuple(sorted(r for r, n in bounds.items() if n == least)))


def truncate_warmup(batches: Iterable[int], seats: int) -> tuple[int, ...]:
    """Warm-up batch sizes that fit in the seats (rule B5): larger ones become one batch of `seats`.

    Each sequence of a warm-up batch takes a slot, so an untruncated list would re-impose the floor
    that the cap removed (scenario S02).
    """
    wanted = sorted(set(batches))
    fitting = [b for b in wanted if 0 < b <= seats]
    if seats > 0 and any(b > seats for b in wanted) and seats not in fitting:
        fitting.append(seats)
    return tuple(fitting)


@dataclass(frozen=True, slots=True)
class RunningSeats:
    """Seats of a group whose pools stand already (rule B8).

    `wanted` is what the ranks agree on now; `seats` is what the rows built allow of it. Where `wanted`
    is more, `sentence` says that only a restart gives the rest; else it is empty.
    """

    seats: int
    wanted: int
    sentence: str


def seats_while_running(agreement: Agreement, rows_built: int, reserved_slots: int) -> RunningSeats:
    """The seats after a change of quota: down to any number, up at most to the rows built (rule B8)."""
    wanted, built = agreement.seats, max(0, rows_built - reserved_slots)
    if wanted <= built:
        return RunningSeats(wanted, wanted, "")
    sentence = (
        f"The ranks now afford {wanted} seats and the pools were built with {rows_built} rows "
        f"({reserved_slots} reserved): {built} seats stay; restart the group to get {wanted}."
    )
    return RunningSeats(built, wanted, sentence)


def numbers_differ_sentence(number_by_name: Mapping[str, int]) -> str:
    """Empty if all names give one number (rule B4), else one sentence with the first two that differ."""
    (first, number), *others = number_by_name.items()
    for name, other in others:
        if other != number:
            return (
                f"{first} is {number} and {name} is {other}: both must be the agreed number of the group; "
                f"take {name} from the agreement or set it to {number}."
            )
    return ""
