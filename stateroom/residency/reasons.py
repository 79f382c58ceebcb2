"""The closed sets of words: why a sequence waits (rule A7), and why something is refused.

The proto enums `WaitReason` and `ErrorReason` carry the same names with their prefix; a test holds
the two in step.
"""

from __future__ import annotations

from enum import StrEnum, auto

__all__ = ["ErrorReason", "Refused", "WaitReason"]


class _Name(StrEnum):
    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name


class WaitReason(_Name):
    """Why a candidate does not run now. Each candidate of a step has exactly one."""

    RESIDENCY_CAP = auto()
    TOKEN_BUDGET = auto()
    BATCH_LIMIT = auto()
    KV_PAGES = auto()
    SCRUBBING = auto()
    TRANSFER_LIMIT = auto()
    POLICY_ORDER = auto()
    TENANT_SHARE = auto()
    RANK_PENDING = auto()
    RECOVERING = auto()
    DRAINING = auto()
    ENGINE = auto()


class ErrorReason(_Name):
    """Everything a service refuses with; the gRPC code of each stands in stateroom/errors.py."""

    INVALID_REQUEST = auto()
    SEQUENCE_ID_IN_USE = auto()
    SEQUENCE_UNKNOWN = auto()
    TOO_MANY_TOKENS = auto()
    DEMAND_EXCEEDS_CAP = auto()
    QUEUE_FULL = auto()
    WAIT_EXPIRED = auto()
    SESSION_UNKNOWN = auto()
    STALE_TERM = auto()
    TERM_TAKEN = auto()
    WRONG_BOOT_ID = auto()
    SEQUENCE_GAP = auto()
    SLOT_NOT_FREE = auto()
    SLOT_OUT_OF_RANGE = auto()
    STALE_GENERATION = auto()
    NOT_BOUND = auto()
    NOT_COMMITTED = auto()
    NOT_READY = auto()
    NOTHING_FITS = auto()
    QUOTA_EXCEEDED = auto()
    NUMBERS_DIFFER = auto()
    NO_POOL = auto()
    LAYOUT_DIFFERS = auto()
    POOL_ALLOCATION_FAILED = auto()
    STREAM_REPLACED = auto()
    DRAINING = auto()
    RANK_MISMATCH = auto()
    KV_EXCEEDS_POOL = auto()


class Refused(Exception):
    """A core refuses: nothing was changed. `message` names the thing, the value and the remedy."""

    def __init__(self, reason: ErrorReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
