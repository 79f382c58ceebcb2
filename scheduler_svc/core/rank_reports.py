"""What enters the core from ranks: residency, ledgers, confirmations, silence."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.residency.agreement import Agreement
from stateroom.residency.answer import Answer
from stateroom.residency.generation import Generation
from stateroom.residency.states import SlotState

__all__ = [
    "Committed",
    "LedgerEntry",
    "RankConfirmed",
    "RankLedger",
    "RankLost",
    "RankReported",
    "RefusedOrder",
]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One slot of a rank's ledger that is not plainly free."""

    slot: int
    state: SlotState
    generation: Generation
    sequence_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class RankReported:
    """A rank's residency: its local answer to what was asked."""

    rank: int
    boot_id: str
    answer: Answer
    reserved_slots: int
    has_pool: bool
    highest_term: int = 0  # the highest it ever heard (rules D1, D6)
    built_rows: int = 0  # rows that stand there, whoever had them built; 0: none (rule B8)


@dataclass(frozen=True, slots=True)
class Committed:
    """A rank built (or kept) this many rows, and enforces this agreement from now on (rule B3)."""

    rank: int
    boot_id: str
    rows: int
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class RankLedger:
    """The first message of a rank's ordered stream: what it really holds (rules D1, D2)."""

    rank: int
    boot_id: str
    rows: int
    entries: tuple[LedgerEntry, ...]
    highest_counter: int


@dataclass(frozen=True, slots=True)
class RefusedOrder:
    """An order a rank did not carry out."""

    slot: int
    generation: Generation
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RankConfirmed:
    """A rank applied all orders up to this number, less the refused ones; some slots became free."""

    rank: int
    boot_id: str
    applied_sequence_number: int
    refused: tuple[RefusedOrder, ...] = ()
    freed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RankLost:
    """The connection to a rank broke, or it fell silent."""

    rank: int
    why: str
