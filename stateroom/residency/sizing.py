"""What one rank affords: section 5 of the design, exact integers only.

    state:        n = floor((Q - F) / S) - R
    full_length:  n = floor(((Q - F) * u - R * S) / (S + K))

S bytes a slot, Q quota, F fixed bytes, R reserved slots, K attention KV of one full-length sequence,
u the usable fraction of growable pools. S + K = 0 is unbounded; a negative n is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateroom.residency.answer import Answer, Bounded, Unbounded
from stateroom.residency.quantity import div_ceil, div_floor, format_bytes, format_gib

__all__ = [
    "Guarantee",
    "SizingTerms",
    "built_bytes",
    "cap_zero_sentence",
    "local_answer",
    "quota_for",
    "raw_slots",
]

Guarantee = Literal["state", "full_length"]


@dataclass(frozen=True, slots=True)
class SizingTerms:
    """The terms of one rank's sum; bytes unless the name says otherwise."""

    quota_bytes: int
    slot_bytes: int
    reserved_slots: int = 1
    fixed_bytes: int = 0
    kv_sequence_bytes: int = 0
    usable_numerator: int = 1
    usable_denominator: int = 1
    guarantee: Guarantee = "state"


def raw_slots(terms: SizingTerms) -> int | None:
    """n of the formula, 0 if negative, or None where nothing is held (S + K = 0)."""
    growable_bytes = terms.quota_bytes - terms.fixed_bytes
    if terms.guarantee == "state":
        if terms.slot_bytes == 0:
            return None
        return max(0, div_floor(max(0, growable_bytes), terms.slot_bytes) - terms.reserved_slots)
    sequence_bytes = terms.slot_bytes + terms.kv_sequence_bytes
    if sequence_bytes == 0:
        return None
    usable_bytes = div_floor(max(0, growable_bytes) * terms.usable_numerator, terms.usable_denominator)
    return max(0, (usable_bytes - terms.reserved_slots * terms.slot_bytes) // sequence_bytes)


def local_answer(terms: SizingTerms, asked: int) -> Answer:
    """This rank's answer to `asked`: unbounded if it affords all of it, else its number (rule B1)."""
    assert asked > 0, f"asked {asked}: at least one sequence must be asked for"
    n = raw_slots(terms)
    return Unbounded() if n is None or n >= asked else Bounded(n)


def built_bytes(terms: SizingTerms, rows: int) -> int:
    """Bytes that `rows` rows and the KV guarantee take; never above the quota (rule B6)."""
    return (
        terms.fixed_bytes
        + rows * terms.slot_bytes
        + max(0, rows - terms.reserved_slots) * terms.kv_sequence_bytes
    )


def quota_for(terms: SizingTerms, slots_count: int) -> int:
    """The smallest quota at which this rank affords `slots_count` slots (the formula turned round)."""
    if terms.guarantee == "state":
        growable_bytes = (slots_count + terms.reserved_slots) * terms.slot_bytes if terms.slot_bytes else 0
        return terms.fixed_bytes + growable_bytes
    usable_bytes = terms.reserved_slots * terms.slot_bytes + slots_count * (
        terms.slot_bytes + terms.kv_sequence_bytes
    )
    return terms.fixed_bytes + div_ceil(usable_bytes * terms.usable_denominator, terms.usable_numerator)


def cap_zero_sentence(rank: int, terms: SizingTerms, asked: int, sequence_slots: int = 1) -> str:
    """The one start-up error of a cap of 0 (rule B7): quota, bytes a slot, reserved, asked, rank, remedy.

    Also of a cap below the slots that one sequence needs.
    """
    one_bytes = quota_for(terms, sequence_slots)
    slots = f"{sequence_slots} slots of" if sequence_slots > 1 else "a slot of"
    return (
        f"No sequence fits on rank {rank}: its quota is {_gib(terms.quota_bytes)}, and one sequence of the "
        f"{asked} asked needs {_gib(one_bytes)} ({slots} {_gib(terms.slot_bytes)}, "
        f"{terms.reserved_slots} reserved, {_gib(terms.kv_sequence_bytes)} KV, "
        f"{_gib(terms.fixed_bytes)} fixed). Raise --quota of rank {rank} to at least "
        f"{_gib(one_bytes)} ({one_bytes} bytes), or make a slot smaller with --ssm-dtype or a larger --tp-size."
    )


def _gib(size_bytes: int) -> str:
    """GiB, or the unit that shows it where two decimals of a GiB would say 0.00."""
    return format_gib(size_bytes) if size_bytes >= 2**30 // 100 else format_bytes(size_bytes)
