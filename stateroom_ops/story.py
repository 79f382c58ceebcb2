"""The story of one sequence's admission: from a live scheduler's Explain or from the spans of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = [
    "Holder",
    "Spell",
    "Story",
    "StoryError",
    "longest_story",
    "story_from_explain",
    "story_from_trace",
]

ADMISSION = "admission"
STALLED = "admission.stalled"  # exported while the wait still goes on
WAIT_MS = "stateroom.wait_ms."  # attributes: the time of each reason


class StoryError(LookupError):
    """There is no such story; one sentence with id, source and remedy."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of waiting for one reason, ms after arrival."""

    reason: str
    from_ms: int
    for_ms: int
    detail: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who held a slot in its way. `state`, `slot` and `held_ms` are known from a live scheduler only."""

    sequence_id: str
    state: str = ""
    slot: int | None = None
    held_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """`cap` None is unbounded; `outcome` is empty while it lives; `position` None once it has left the queue."""

    sequence_id: str
    outcome: str
    sentence: str
    waited_ms: int
    bind_ms: int | None
    cap: int | None
    residents: int
    limiting_ranks: tuple[int, ...]
    position_at_arrival: int
    position: int | None
    ms_by_reason: dict[str, int]  # whole waits; `spells` keeps the first and the last ones only
    spells: tuple[Spell, ...]
    holders: tuple[Holder, ...]
    estimate_ms: int | None
    source: str

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def story_from_explain(e: pb.ExplainResponse, source: str) -> Story:
    """From a live scheduler."""
    waits = e.state == types.SEQUENCE_STATE_WAITING
    spells = tuple(Spell(_reason(s.reason), s.from_ms, s.for_ms, s.detail) for s in e.history)
    return Story(
        sequence_id=e.sequence_id,
        outcome=e.outcome,
        sentence=e.sentence,
        waited_ms=e.waited_ms,
        bind_ms=None,
        cap=e.cap if e.HasField("cap") else None,
        residents=e.residents,
        limiting_ranks=tuple(e.limiting_ranks),
        position_at_arrival=e.position_at_arrival,
        position=e.position if waits else None,
        ms_by_reason=_totals(spells),
        spells=spells,
        holders=tuple(
            Holder(
                h.sequence_id,
                types.SequenceState.Name(h.state).removeprefix("SEQUENCE_STATE_"),
                h.slot,
                h.held_ms,
            )
            for h in e.holders
        ),
        estimate_ms=e.estimate_ms if e.HasField("estimate_ms") else None,
        source=source,
    )


def story_from_trace(path: Path, sequence_id: str) -> Story:
    """From the last admission of that id in a trace file. Errors: StoryError."""
    found: Mapping[str, Any] | None = None
    for span in _admissions(path):
        same = span["attributes"].get("stateroom.sequence.id") == sequence_id
        if same and (span["name"] == ADMISSION or found is None):
            found = span
    if found is None:
        raise StoryError(
            f"trace {str(path)!r} has no admission of {sequence_id!r}: check the id, or give --trace another file"
        )
    return _story_of_span(found, path)


def longest_story(path: Path) -> Story:
    """Of the admission that waited longest in a trace file. Errors: StoryError."""
    longest = max(
        _admissions(path), key=lambda span: int(span["attributes"].get("stateroom.wait_ms", 0)), default=None
    )
    if longest is None:
        raise StoryError(f"trace {str(path)!r} has no admission: give --trace another file")
    return _story_of_span(longest, path)


def _admissions(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                number += 1
                if f'"{ADMISSION}' not in line:
                    continue  # most lines are of other spans
                span = json.loads(line)
                _demand_fields(span)
                if span["name"] in (ADMISSION, STALLED):
                    yield span
    except OSError as error:
        raise StoryError(
            f"trace {str(path)!r} cannot be read ({error.strerror}): give --trace a file"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise StoryError(
            f"trace {str(path)!r} line {number} is no span as Stateroom writes it: give --trace a trace.jsonl"
        ) from None


def _demand_fields(span: Mapping[str, Any]) -> None:
    """KeyError or TypeError where it is no span of the JSON-lines exporter."""
    for field in ("attributes", "events", "links", "start_unix_ns", "end_unix_ns"):
        span[field]


def _story_of_span(span: Mapping[str, Any], path: Path) -> Story:
    given = span["attributes"]
    waited_ms = int(
        given.get("stateroom.wait_ms", (span["end_unix_ns"] - span["start_unix_ns"]) // 1_000_000)
    )
    cap = given.get("stateroom.cap")
    spells = _spells(span["events"], waited_ms)
    told = {name.removeprefix(WAIT_MS): int(ms) for name, ms in given.items() if name.startswith(WAIT_MS)}
    return Story(
        sequence_id=str(given.get("stateroom.sequence.id", "")),
        outcome=str(given.get("stateroom.outcome", "")),
        sentence="",
        waited_ms=waited_ms,
        bind_ms=given.get("stateroom.bind_ms"),
        cap=cap if isinstance(cap, int) else None,
        residents=int(given.get("stateroom.residents", 0)),
        limiting_ranks=tuple(given.get("stateroom.limiting_ranks", ())),
        position_at_arrival=int(given.get("stateroom.queue.position", 0)),
        position=None,
        ms_by_reason=told or _totals(spells),
        spells=spells,
        holders=tuple(
            Holder(str(link["attributes"].get("stateroom.sequence.id", link["span_id"])))
            for link in span["links"]
        ),
        estimate_ms=None,
        source=str(path),
    )


def _spells(events: Sequence[Mapping[str, Any]], waited_ms: int) -> tuple[Spell, ...]:
    waits = [event["attributes"] for event in events if event["name"] == "waits"]
    starts = [int(wait["stateroom.from_ms"]) for wait in waits]
    ends = [*starts[1:], waited_ms][: len(starts)]
    return tuple(
        Spell(
            str(wait["stateroom.reason"]), start, max(0, end - start), str(wait.get("stateroom.detail", ""))
        )
        for wait, start, end in zip(waits, starts, ends, strict=True)
    )


def _totals(spells: Sequence[Spell]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for spell in spells:
        totals[spell.reason] = totals.get(spell.reason, 0) + spell.for_ms
    return totals


def _reason(number: types.WaitReason.ValueType) -> str:
    return types.WaitReason.Name(number).removeprefix("WAIT_REASON_")
