"""docker-compose.yml as it stands: three ranks (rank 2 attention-only), the scheduler, a replaying executor."""

from __future__ import annotations

import time

import pytest

from tests.compose.conftest import StartGroup
from tests.compose.engine import SERVICES, Compose

pytestmark = [pytest.mark.compose, pytest.mark.timeout(2400)]

CAP = 25  # rank 1: 768 KiB at 29.25 KiB a slot affords 26 rows, one of them reserved
GRACE_SECONDS = 10  # stop_grace_period of every part


def _full(group: Compose) -> None:
    group.until("a full group", lambda: group.status()["residents"] == CAP, 60)


def _quiet(group: Compose) -> None:
    """No part of the group said that something went wrong by itself."""
    text = group.logs()
    bad = [word for word in ("Traceback", "[error", "[critical") if word in text]
    assert not bad, f"{bad} in\n{text}"


def test_a_run_passes_with_containers(start_group: StartGroup) -> None:
    group = start_group(REPLAY_LIMIT=60, REPLAY_STEP_MS=5)
    code = group.until("the executor's end", group.exit_codes, 120)
    assert code == {"executor": 0}
    summary = group.summary()
    assert summary["finished"] == summary["requests"] == 60
    assert (summary["errors"], summary["error_sentences"]) == (0, [])
    assert summary["cap"] == summary["peak_residents"] == CAP
    assert summary["limiting_ranks"] == [1]
    assert summary["waits_by_reason"]["RESIDENCY_CAP"]["sequences"] > 0
    left = group.status()
    assert (left["residents"], left["waiting"]) == (0, 0)
    _quiet(group)


def test_b_a_killed_rank_holds_admissions_back_and_its_residents_are_computed_again(
    start_group: StartGroup,
) -> None:
    group = start_group(REPLAY_LIMIT=32, REPLAY_STEP_MS=100)  # long enough that some outlive the outage
    _full(group)
    group("kill", "rank1")
    pending = group.until(
        "RANK_PENDING", lambda: (s := group.status())["waiting_by_reason"].get("RANK_PENDING") and s, 20
    )
    assert pending["pending"]
    assert pending["residents"] > 0  # what runs goes on (rule B2)
    assert set(group.exit_codes()) == {"rank1"}  # nothing else ended

    group("up", "--detach", "--no-build", "--no-deps", "rank1")
    code = group.until("the executor's end", lambda: "executor" in (c := group.exit_codes()) and c, 200)
    assert code == {"executor": 0}
    summary = group.summary()
    assert summary["finished"] == summary["requests"] == 32
    assert (summary["errors"], summary["error_sentences"]) == (0, [])
    assert summary["recomputed"] > 0
    assert summary["peak_residents"] == CAP
    assert summary["waits_by_reason"]["RANK_PENDING"]["sequences"] > 0
    said = "\n".join(summary["events"])
    assert "a rank is pending: new admissions wait (RANK_PENDING)" in said
    assert "are computed again (rank 1 restarted and lost its state)" in said
    _quiet(group)


def test_p02_stop_ends_every_part_within_its_grace_with_code_0(start_group: StartGroup) -> None:
    group = start_group(REPLAY_LIMIT=400, REPLAY_STEP_MS=50)
    _full(group)
    began = time.monotonic()
    group("stop")
    assert time.monotonic() - began < 2 * GRACE_SECONDS  # executor, then scheduler, then ranks
    assert group.exit_codes() == dict.fromkeys(SERVICES, 0)
    assert "replay stopped" in group.logs("executor")
    assert "scheduler stopped" in group.logs("scheduler")
    _quiet(group)


def test_d3_a_scheduler_in_a_new_container_takes_over_and_nothing_is_computed_again(
    start_group: StartGroup,
) -> None:
    """Its term is on a volume; its address is another one."""
    group = start_group(REPLAY_LIMIT=60, REPLAY_STEP_MS=25)
    _full(group)
    before = group.status()["term"]
    group("kill", "scheduler")
    group("up", "--detach", "--no-build", "--no-deps", "--force-recreate", "scheduler")
    group.until("the executor's end", lambda: "executor" in group.exit_codes(), 150)
    assert group.exit_codes() == {"executor": 0}
    summary = group.summary()
    assert summary["finished"] == summary["requests"] == 60
    assert (summary["errors"], summary["error_sentences"]) == (0, [])
    assert summary["recomputed"] == 0
    assert summary["away_steps"] > 0  # what runs goes on without a scheduler (rule D7)
    assert summary["peak_residents"] == CAP
    after = group.status()
    assert after["term"] > before
    assert (after["residents"], after["waiting"]) == (0, 0)
    _quiet(group)
