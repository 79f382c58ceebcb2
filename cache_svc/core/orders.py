"""What arrives on the ordered stream of a leader, and what became of it (rule D1)."""

from __future__ import annotations

from dataclasses import dataclass

from cache_svc.core.effects import Effect
from cache_svc.core.ledger import Generation, Owner, Refusal

__all__ = ["Applied", "BindOrder", "Opening", "ReleaseOrder"]


@dataclass(frozen=True, slots=True)
class BindOrder:
    """Bind a slot to an owner."""

    slot: int
    owner: Owner


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """Release a slot of this ownership."""

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Opening:
    """The first message of a stream; it carries no orders."""

    term: int
    leader_boot_id: str
    rank_boot_id: str = ""
    sequence_number: int = 0
    orders_count: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one ordered message."""

    sequence_number: int
    refused: tuple[Refusal, ...]
    freed: tuple[int, ...]
    effects: tuple[Effect, ...]
