"""What the scheduler knows of each rank, and the agreement that follows (rules B1, B2, D1, D2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler_svc.core.effects import BindOrder, ReleaseOrder
from scheduler_svc.core.events import Generation
from scheduler_svc.core.sequence import Sequence
from stateroom.residency.agreement import Agreement, agree, seats_while_running
from stateroom.residency.answer import Answer, Bounded, Pending, Unbounded

__all__ = ["Rank", "RankTable"]


Bind = tuple[Sequence, Generation]


@dataclass(slots=True)
class Rank:
    """One rank of the group. `boot_id` is empty until it was heard."""

    number: int
    boot_id: str = ""
    answer: Answer = field(default_factory=lambda: Pending("not heard from"))
    reserved_slots: int = 0
    has_pool: bool = False
    built_rows: int = 0  # rows that stand there; 0: none
    told: Agreement | None = None  # on this connection
    confirmed: Agreement | None = None  # what this process enforces (rule B3)
    ledger_heard: bool = False
    ledger_asked: bool = False  # on its way
    lost_why: str = "not heard from"  # empty while the connection is good
    unattached: set[str] = field(default_factory=set)  # sessions whose worker has to attach again (D2)

    next_number: int = 1
    releases: list[ReleaseOrder] = field(default_factory=list)  # outbox of this event
    binds: list[BindOrder] = field(default_factory=list)
    binding: list[Bind] = field(default_factory=list)
    sent: deque[tuple[int, list[Bind]]] = field(default_factory=deque)  # binds not confirmed

    @property
    def in_service(self) -> bool:
        """Its ledger was heard on this connection, so orders may go out (rule D1)."""
        return self.ledger_heard and not self.lost_why

    @property
    def status(self) -> str:
        """ "ready", or one sentence why it is pending."""
        if self.lost_why:
            return self.lost_why
        if isinstance(self.answer, Pending):
            return self.answer.reason or "its answer is pending"
        if self.confirmed is None:
            return "is building its pool"
        if not self.ledger_heard:
            return "has not sent its ledger yet"
        if self.unattached:
            return "restarted and its worker has not attached the new pool yet"
        return "ready"


class RankTable:
    """The expected ranks of a group, in order."""

    def __init__(self, ranks_count: int, asked: int) -> None:
        self.ranks = [Rank(number) for number in range(ranks_count)]
        self.asked = asked
        self.pending_count = ranks_count  # kept by refresh(): asked about in every pass

    def __getitem__(self, number: int) -> Rank:
        return self.ranks[number]

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.ranks)

    def refresh(self) -> None:
        """After a rank's status may have changed."""
        self.pending_count = sum(rank.status != "ready" for rank in self.ranks)

    @property
    def first_pending(self) -> Rank | None:
        """The rank to name when the group is pending."""
        return next((rank for rank in self.ranks if rank.status != "ready"), None)

    def mismatch(self) -> str:
        """One sentence if ranks reserve different numbers of rows (rule C3), else empty."""
        heard = {rank.number: rank.reserved_slots for rank in self.ranks if rank.boot_id}
        if len(set(heard.values())) <= 1:
            return ""
        said = ", ".join(f"rank {n} reserves {r}" for n, r in heard.items())
        return f"ranks reserve different numbers of slots ({said}): start them all with the same --reserved"

    @property
    def reserved_slots(self) -> int:
        """R of the group."""
        return max((rank.reserved_slots for rank in self.ranks), default=1)

    def agreement(self) -> Agreement:
        """MIN over all ranks, and never above the rows that stand already (rule B8)."""
        wanted, rows = self._wanted(), self._least_rows()
        if not self._beyond_rows(wanted, rows):
            return wanted
        limiting = tuple(rank.number for rank in self.ranks if rank.built_rows == rows)
        return Agreement(Bounded(rows - self.reserved_slots), self.asked, limiting)

    def restart_sentence(self) -> str:
        """What only a restart gives (rule B8), else empty."""
        return self._beyond_rows(self._wanted(), self._least_rows())

    def enforced_seats(self) -> int:
        """Seats that every rank has confirmed; 0 while one has confirmed none."""
        return min((rank.confirmed.seats if rank.confirmed else 0 for rank in self.ranks), default=0)

    def _wanted(self) -> Agreement:
        heard: dict[int, Answer] = {
            rank.number: Pending(rank.lost_why) if rank.lost_why else rank.answer for rank in self.ranks
        }
        return agree(heard, self.asked)

    def _least_rows(self) -> int:
        """Rows of the smallest ledger that stands; 0 if none does. They may be of an earlier scheduler."""
        return min((rank.built_rows for rank in self.ranks if rank.built_rows), default=0)

    def _beyond_rows(self, wanted: Agreement, rows: int) -> str:
        if isinstance(wanted.answer, Pending) or not rows:
            return ""
        return seats_while_running(wanted, rows, self.reserved_slots).sentence

    def unbounded(self) -> bool:
        """True if no rank has a bound below what was asked."""
        return all(isinstance(rank.answer, Unbounded) for rank in self.ranks)
