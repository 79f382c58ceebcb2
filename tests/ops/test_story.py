"""`stateroom why`: one story from a live answer or from spans, told in a few lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from stateroom.telemetry import setup_telemetry
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom_ops.story import StoryError, longest_story, story_from_explain, story_from_trace
from stateroom_ops.story_view import story_text

MS = 1_000_000


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with three admissions as a scheduler's spans: at once, a stall, and a rejection."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    path = tmp_path / "trace.jsonl"
    telemetry = setup_telemetry("stateroom-scheduler", trace_file=path)
    _admission(telemetry.provider, "req-1", "admitted", [], 0)
    _admission(
        telemetry.provider,
        "req-2",
        "admitted",
        [("RESIDENCY_CAP", 0, "cap 2, limited by rank 0"), ("SCRUBBING", 1200, "rank 1 scrubs 1 slots")],
        1250,
        holder="req-1",
    )
    _admission(telemetry.provider, "req-3", "rejected", [], 0)
    telemetry.tracer.start_span("bind", attributes={"stateroom.sequence.id": "req-4"}).end()
    telemetry.shutdown()
    return path


def _admission(
    provider: TracerProvider, name: str, outcome: str, spells, wait_ms: int, holder: str = ""
) -> None:
    tracer = provider.get_tracer("t")
    span = tracer.start_span(
        "admission",
        start_time=MS,
        attributes={
            "stateroom.sequence.id": name,
            "stateroom.queue.position": 4,
            "stateroom.outcome": outcome,
            "stateroom.cap": 2,
            "stateroom.residents": 2,
            "stateroom.limiting_ranks": [0],
            "stateroom.wait_ms": wait_ms,
            "stateroom.bind_ms": 1,
            **{f"stateroom.wait_ms.{reason}": 99 for reason, _, _ in spells},
        },
    )
    for reason, from_ms, detail in spells:
        span.add_event(
            "waits",
            {"stateroom.reason": reason, "stateroom.detail": detail, "stateroom.from_ms": from_ms},
        )
    if holder:
        span.add_link(tracer.start_span("other").get_span_context(), {"stateroom.sequence.id": holder})
    span.end(MS * (1 + wait_ms))


def test_a_stall_from_a_trace_names_cap_rank_residents_position_and_times(trace: Path) -> None:
    story = story_from_trace(trace, "req-2")
    assert (story.cap, story.limiting_ranks, story.residents, story.position_at_arrival) == (2, (0,), 2, 4)
    assert [(s.reason, s.from_ms, s.for_ms) for s in story.spells] == [
        ("RESIDENCY_CAP", 0, 1200),
        ("SCRUBBING", 1200, 50),
    ]
    assert [h.sequence_id for h in story.holders] == ["req-1"]
    text = story_text(story)
    assert text.splitlines() == [
        "req-2 was admitted after 1,250 ms.",
        "  cap       2 sequences, limited by rank 0; 2 resident",
        "  queue     4 ahead of it when it arrived",
        "  waited      1,200 ms  RESIDENCY_CAP  (cap 2, limited by rank 0)",
        "                 50 ms  SCRUBBING      (rank 1 scrubs 1 slots)",
        "  behind    req-1",
        "  then      every rank confirmed its slot 1 ms after it was chosen",
        f"  source    {trace}",
    ]
    assert json.loads(json.dumps(story.as_dict()))["ms_by_reason"] == {"RESIDENCY_CAP": 99, "SCRUBBING": 99}


def test_one_that_never_waited_and_one_that_was_rejected(trace: Path) -> None:
    assert story_text(story_from_trace(trace, "req-1")).startswith("req-1 was admitted at once.")
    assert story_text(story_from_trace(trace, "req-3")).startswith("req-3: rejected after 0 ms.")


def test_the_longest_wait_of_a_trace(trace: Path) -> None:
    assert longest_story(trace).sequence_id == "req-2"


def test_many_changes_are_told_as_times_with_first_and_last(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    telemetry = setup_telemetry("stateroom-scheduler", trace_file=path)
    spells = [(("RESIDENCY_CAP", "SCRUBBING")[n % 2], 10 * n, "") for n in range(12)]
    _admission(telemetry.provider, "req-9", "admitted", spells, 120)
    telemetry.shutdown()
    lines = story_text(story_from_trace(path, "req-9")).splitlines()
    assert "  waited         99 ms  RESIDENCY_CAP" in lines
    assert "            from 0 ms on: 10 ms  RESIDENCY_CAP" in lines
    assert "            from 110 ms on: 10 ms  SCRUBBING" in lines


def test_a_recompute_tells_the_last_admission(trace: Path) -> None:
    telemetry = setup_telemetry("stateroom-scheduler", trace_file=trace)
    _admission(telemetry.provider, "req-2", "admitted", [("RANK_PENDING", 0, "rank 1")], 700)
    telemetry.shutdown()
    assert story_from_trace(trace, "req-2").waited_ms == 700


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no admission of 'req-2': check the id"),
        ('{"name": "admission"\n', "line 1 is no span as Stateroom writes it"),
        ('{"name": "admission"}\n', "line 1 is no span as Stateroom writes it"),
    ],
)
def test_a_trace_that_tells_nothing_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(StoryError) as caught:
        story_from_trace(path, "req-2")
    assert sentence in str(caught.value)


def test_a_live_answer_tells_the_same_and_what_is_still_open() -> None:
    answer = pb.ExplainResponse(
        sequence_id="req-7",
        state=types.SEQUENCE_STATE_WAITING,
        sentence="It waits for a slot: 2 of 2 are held.",
        waited_ms=12_345,
        position=3,
        position_at_arrival=5,
        cap=2,
        residents=2,
        limiting_ranks=[1, 3],
        estimate_ms=800,
    )
    answer.history.add(
        reason=types.WAIT_REASON_RESIDENCY_CAP, from_ms=0, for_ms=12_345, detail="cap 2, limited by rank 1, 3"
    )
    answer.holders.add(sequence_id="req-1", state=types.SEQUENCE_STATE_DECODE, slot=4, held_ms=3000)
    assert story_text(story_from_explain(answer, "unix:/s.sock")).splitlines() == [
        "req-7: It waits for a slot: 2 of 2 are held.",
        "  cap       2 sequences, limited by ranks 1, 3; 2 resident",
        "  queue     5 ahead of it when it arrived, 3 now",
        "  waited        12.3 s  RESIDENCY_CAP  (cap 2, limited by rank 1, 3)",
        "  behind    req-1 (decode, slot 4, for 3,000 ms)",
        "  expected  a slot in about 800 ms",
        "  source    unix:/s.sock",
    ]


def test_unbounded_is_said_and_is_no_number() -> None:
    story = story_from_explain(pb.ExplainResponse(sequence_id="a", outcome="finished", residents=3), "x")
    assert story.cap is None
    assert "unbounded; 3 slots were held" in story_text(story)
