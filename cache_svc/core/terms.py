"""Which leader a rank follows: the highest term heard, tied to one process (rules D1, D4, D6).

A new term is followed in two moves: the core asks for it to be kept, the driver persists it, and only
then the core obeys it. A restart in between never falls behind what was obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.residency.reasons import ErrorReason, Refused

__all__ = ["Leader", "is_new"]


@dataclass(frozen=True, slots=True)
class Leader:
    """A term and the scheduler process that leads with it."""

    term: int
    boot_id: str


def is_new(leader: Leader, followed: Leader) -> bool:
    """Whether `leader` is to be followed from now on. Refuses a lower term, and the same one from another."""
    if leader.term < 1 or not leader.boot_id:
        raise Refused(
            ErrorReason.INVALID_REQUEST,
            f"term {leader.term} of leader {leader.boot_id!r}: both are required",
        )
    if leader.term < followed.term:
        raise Refused(
            ErrorReason.STALE_TERM,
            f"term {leader.term} is over, this rank follows term {followed.term}: stop leading",
        )
    if leader.term == followed.term and followed.boot_id not in ("", leader.boot_id):
        raise Refused(
            ErrorReason.TERM_TAKEN,
            f"term {leader.term} belongs to leader {followed.boot_id}: take a higher one",
        )
    return leader != followed
