"""KV pages as a counted resource that the executor reports (rule A8, reason KV_PAGES).

Guarantee `full_length` reserves the pages of prompt and longest output for every resident, so a
resident never runs out. Guarantee `state` asks only that the first chunk's pages are free now; the
engine preempts when it over-admitted. Without a report nothing is held back for pages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from scheduler_svc.core.events import Arrival, KvReported
from scheduler_svc.core.sequence import Sequence
from stateroom.residency.quantity import div_ceil

__all__ = ["KvBook", "pages_too_many", "size_class"]


@dataclass(slots=True)
class KvBook:
    """Pages of one session's engine; all counts are pages."""

    full_length: bool
    extra_tokens: int  # draft tokens and one
    page_tokens: int = 0  # 0: never reported
    total: int = 0
    free: int = 0
    reserved: int = 0  # full_length: worst case of all residents
    promised: int = 0  # state: first chunks whose pages no report shows as taken yet
    _due: deque[tuple[int, int]] = field(default_factory=deque)  # step of a first chunk, its pages

    def report(self, fact: KvReported, step: int) -> None:
        """Free pages as of this message: first chunks of earlier steps have taken theirs."""
        self.page_tokens, self.total, self.free = fact.page_tokens, fact.total_pages, fact.free_pages
        while self._due and self._due[0][0] < step:
            self.promised -= self._due.popleft()[1]

    def need(self, sequence: Sequence, first_chunk_tokens: int) -> int:
        """Pages that have to be had before it starts."""
        if not self.page_tokens:
            return 0
        return (
            self.worst_case(sequence.arrival)
            if self.full_length
            else div_ceil(first_chunk_tokens, self.page_tokens)
        )

    def worst_case(self, arrival: Arrival) -> int:
        """Pages of the whole sequence."""
        tokens = arrival.prompt_tokens + arrival.max_output_tokens + self.extra_tokens
        return div_ceil(tokens, self.page_tokens) if self.page_tokens else 0

    def lacks(self, need: int) -> str:
        """Empty if there is room, else the numbers."""
        if not self.page_tokens:
            return ""
        if self.full_length:
            left = self.total - self.reserved
            return "" if need <= left else f"needs {need} pages, {left} of {self.total} are not reserved"
        left = self.free - self.promised
        return "" if need <= left else f"needs {need} pages, {max(0, left)} of {self.total} are free"

    def take(self, sequence: Sequence, need: int) -> None:
        """Chosen: its pages are reserved or promised."""
        sequence.kv_pages = need
        if self.full_length:
            self.reserved += need
        else:
            self.promised += need

    def started(self, sequence: Sequence, step: int) -> None:
        """Its first chunk runs in this step; the next report shows its pages as taken."""
        if not self.full_length and sequence.kv_pages:
            self._due.append((step, sequence.kv_pages))
            sequence.kv_pages = 0

    def give_back(self, sequence: Sequence) -> None:
        """It ended, or never started."""
        if self.full_length:
            self.reserved -= sequence.kv_pages
        else:
            self.promised -= sequence.kv_pages
        sequence.kv_pages = 0


def size_class(kv: KvBook, sequence: Sequence) -> int:
    """Waiters whose pages differ by less than a factor of two share a lane."""
    return kv.worst_case(sequence.arrival).bit_length()


def pages_too_many(kv: KvBook, arrival: Arrival) -> str:
    """One sentence if the engine's pages never cover it, else empty."""
    need = kv.worst_case(arrival)
    if not kv.page_tokens or need <= kv.total:
        return ""
    return (
        f"{arrival.sequence_id} needs {need} KV pages of {kv.page_tokens} tokens and the engine has {kv.total}: "
        "shorten it or give the engine more pages"
    )
