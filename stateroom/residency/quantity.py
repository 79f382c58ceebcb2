"""Exact integer quantities: bytes from text, floor and ceiling division by name (section 5)."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["QuantityError", "align_up", "div_ceil", "div_floor", "format_bytes", "format_gib", "parse_bytes"]

_UNIT_BYTES = {
    "": 1, "b": 1,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class QuantityError(ValueError):
    """A text that is not a quantity; the message names the value and the remedy."""


def parse_bytes(text: str) -> int:
    """Bytes of "24.86GiB", "512 MiB", "80GB" or "26693221744"; fractions round down to a byte."""
    match = _PATTERN.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _UNIT_BYTES:
        raise QuantityError(
            f"{text!r} is not a number of bytes: write it as 24.86GiB, 512MiB, 80GB or 1073741824"
        )
    return int(Fraction(match.group(1)) * _UNIT_BYTES[unit])


def div_floor(dividend: int, divisor: int) -> int:
    """Largest n with n * divisor <= dividend."""
    assert divisor > 0, f"division of {dividend} by {divisor}"
    return dividend // divisor


def div_ceil(dividend: int, divisor: int) -> int:
    """Smallest n with n * divisor >= dividend."""
    assert divisor > 0, f"division of {dividend} by {divisor}"
    return -(-dividend // divisor)


def align_up(size_bytes: int, alignment_bytes: int) -> int:
    """Smallest multiple of the alignment that is not below the size."""
    return div_ceil(size_bytes, alignment_bytes) * alignment_bytes


def format_gib(size_bytes: int) -> str:
    """GiB with two decimals, as in the design's figures."""
    return f"{size_bytes / 2**30:.2f} GiB"


def format_bytes(size_bytes: int) -> str:
    """The unit a person would pick: B, KiB, MiB or GiB."""
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= unit_bytes:
            return f"{size_bytes / unit_bytes:.2f} {unit}"
    return f"{size_bytes} B"
