"""Request traces: Azure CSV, Mooncake JSON lines, and a plain CSV, read into one kind of request.

    Azure     TIMESTAMP,ContextTokens,GeneratedTokens      2023-11-16 18:17:03.9799600,4808,10
    Mooncake  {"timestamp": ms, "input_length": n, "output_length": n}   a line
    plain     arrival_s,input_tokens,output_tokens         0.003,156,577

Columns that are not named here are ignored. Requests come out in order of arrival, from 0.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

__all__ = ["TraceError", "TraceRequest", "read_trace"]


class TraceError(ValueError):
    """A trace that cannot be read; one sentence with file, line or column, and the remedy."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request; `arrival_ms` from the first of its trace. Lengths stand as recorded, 0 included."""

    arrival_ms: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    arrival: str
    prompt: str
    output: str
    to_ms: Callable[[str], float]

    @property
    def columns(self) -> tuple[str, str, str]:
        return (self.arrival, self.prompt, self.output)


def _azure_ms(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000


_AZURE = _Format("Azure CSV", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _azure_ms)
_PLAIN = _Format("plain CSV", "arrival_s", "input_tokens", "output_tokens", lambda text: float(text) * 1000)
_MOONCAKE = _Format("Mooncake JSONL", "timestamp", "input_length", "output_length", float)


def read_trace(path: Path, limit: int | None = None) -> list[TraceRequest]:
    """The first `limit` requests of a file, sorted by arrival. Errors: TraceError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(islice(_rows(path, lines), limit))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise TraceError(f"trace {str(path)!r} cannot be read ({reason}): give the path of a trace") from None
    if not rows:
        raise TraceError(f"trace {str(path)!r} holds no request: give one with at least one line of data")
    rows.sort(key=lambda request: request.arrival_ms)
    first_ms = rows[0].arrival_ms
    return [TraceRequest(r.arrival_ms - first_ms, r.prompt_tokens, r.output_tokens) for r in rows]


def _rows(path: Path, lines: Iterator[str]) -> Iterator[TraceRequest]:
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        yield from _json_rows(path, first, lines)
        return
    header = [column.strip() for column in next(csv.reader([first]), [])]
    kind = _AZURE if any(column in header for column in _AZURE.columns) else _PLAIN
    _demand_columns(path, kind, header)
    for number, cells in enumerate(csv.reader(lines), 2):
        if cells:
            yield _request(path, number, kind, dict(zip(header, cells, strict=False)))


def _json_rows(path: Path, first: str, lines: Iterator[str]) -> Iterator[TraceRequest]:
    for number, line in enumerate(_chain(first, lines), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise TraceError(
                f"trace {str(path)!r} line {number} is not JSON ({error.msg}): correct or remove the line"
            ) from None
        if not isinstance(found, dict):
            raise TraceError(
                f"trace {str(path)!r} line {number} is no JSON object: correct or remove the line"
            )
        _demand_columns(path, _MOONCAKE, list(found))
        yield _request(path, number, _MOONCAKE, found)


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _demand_columns(path: Path, kind: _Format, found: list[str]) -> None:
    missing = [column for column in kind.columns if column not in found]
    if missing:
        raise TraceError(
            f"trace {str(path)!r} has no column {missing[0]!r} (found {', '.join(found) or 'nothing'}): a {kind.name} "
            f"trace needs {', '.join(kind.columns)}"
        )


def _request(path: Path, number: int, kind: _Format, row: Mapping[str, object]) -> TraceRequest:
    column = kind.arrival
    try:
        arrival_ms = kind.to_ms(str(row[column]))
        column = kind.prompt
        prompt_tokens = int(str(row[column]))
        column = kind.output
        return TraceRequest(arrival_ms, prompt_tokens, int(str(row[column])))
    except (ValueError, KeyError):
        raise TraceError(
            f"trace {str(path)!r} line {number} column {column!r} is {row.get(column)!r}: a number is needed there"
        ) from None
