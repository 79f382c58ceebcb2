"""Tables and sentences for people, from messages."""

from __future__ import annotations

import io

from rich.console import Console

from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom_ops.demo_view import live_line, live_view
from stateroom_ops.rank_words import cap_of, quota_words, residency_words
from stateroom_ops.replay_tally import ReplayTally, percentile
from stateroom_ops.status_view import status_object, status_view


def _description() -> pb.DescribeResidencyResponse:
    """Three ranks: one limits, one is attention-only, one was never heard."""
    d = pb.DescribeResidencyResponse(
        asked=128,
        limiting_ranks=[0],
        residents=40,
        waiting=7,
        term=3,
        sentence="40 of 128 fit.",
        peak_residents=40,
    )
    d.agreed.bounded.slots_count = 40
    d.residents_by_kind.add(state=types.SEQUENCE_STATE_DECODE, count=39)
    d.residents_by_kind.add(state=types.SEQUENCE_STATE_SUSPENDED, count=1)
    d.waiting_by_reason["RESIDENCY_CAP"] = 7
    limits = d.ranks.add(address="unix:/r0", status="ready", limiting=True)
    limits.report.local.bounded.slots_count = 40
    limits.report.agreed.bounded.slots_count = 40
    limits.report.terms.slot_bytes = 2**20
    limits.report.terms.recurrent_layers_count = 24
    limits.report.terms.quota_bytes = 41 * 2**20
    limits.report.terms.ssm_dtype.dtype = "float32"
    limits.report.slots.rows, limits.report.slots.reserved = 41, 1
    limits.report.slots.bound, limits.report.slots.quarantined = 39, 1
    attention = d.ranks.add(address="unix:/r1", status="ready", unused_slots=0)
    attention.report.local.unbounded.SetInParent()
    attention.report.terms.attention_layers_count = 5
    d.ranks.add(address="unix:/r2", status="has not answered yet")
    return d


def _printed(what: object, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(what)
    return out.getvalue()


def test_the_three_answers_are_three_words_and_an_unset_one_is_pending_b1() -> None:
    assert residency_words(types.Residency(bounded=types.Bounded(slots_count=0))) == "0 slots"
    assert residency_words(types.Residency(unbounded=types.Unbounded())) == "unbounded"
    assert residency_words(types.Residency(pending=types.Pending(reason="late"))) == "pending (late)"
    assert residency_words(types.Residency()) == "pending"
    assert cap_of(types.Residency(bounded=types.Bounded(slots_count=0))) == 0
    assert cap_of(types.Residency(unbounded=types.Unbounded())) is None


def test_status_shows_every_rank_who_holds_and_who_waits() -> None:
    text = _printed(status_view("unix:/s", _description()))
    for words in (
        "40 of 128 fit.",
        "0 limits  40 slots",
        "1.00 MiB a slot (24 recurrent layers, float32) in 41.00 MiB",
        "5 attention layers, no state to hold",
        "rank 2 has not answered yet",
        "resident 40 (39 decode, 1 suspended), 40 at most so far",
        "waiting 7: 7 for RESIDENCY_CAP",
        "scheduler unix:/s, term 3",
    ):
        assert words in text, text


def test_status_as_an_object_keeps_unbounded_pending_and_bounded_apart() -> None:
    told = status_object("unix:/s", _description())
    assert (told["cap"], told["unbounded"], told["pending"]) == (40, False, False)
    assert told["residents_by_kind"] == {"DECODE": 39, "SUSPENDED": 1}
    d = _description()
    d.agreed.unbounded.SetInParent()
    assert (status_object("a", d)["cap"], status_object("a", d)["unbounded"]) == (None, True)
    d.agreed.Clear()
    assert (status_object("a", d)["cap"], status_object("a", d)["pending"]) == (None, True)


def test_kv_is_named_where_it_is_part_of_the_sum() -> None:
    rank = _description().ranks[0]
    rank.report.terms.kv_sequence_bytes = 2**30
    assert quota_words(rank).startswith(
        "1.00 MiB a slot (24 recurrent layers, float32) and 1.00 GiB of KV a full-"
    )


def test_the_live_table_fits_in_80_columns() -> None:
    tally = ReplayTally(
        requests=400, residents=40, waiting=7, waiting_by_reason={"RESIDENCY_CAP": 7}, finished=9
    )
    text = _printed(live_view(_description(), tally), width=80)
    assert "…" not in text
    assert "7 RESIDENCY_CAP" in text
    assert "24 layers, 1.00 MiB a slot" in text
    assert live_line(tally, 40).endswith("resident 40/40  waiting 7 (7 RESIDENCY_CAP)  finished 9/400")


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([], 0.5) == 0.0
    assert percentile([7.0], 0.99) == 7.0
