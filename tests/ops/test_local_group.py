"""Real processes: a group starts, is replayed against, loses a rank, starts late, ends cleanly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from stateroom.client import Session
from stateroom_ops.cli import main
from stateroom_ops.group_settings import GroupSettings, twin_config
from stateroom_ops.local_group import LocalGroup, LocalGroupError
from stateroom_ops.operator_client import OperatorClient, list_slots
from stateroom_ops.replay_run import ReplayPlan, replay_session
from stateroom_ops.run_dir import read_record
from stateroom_ops.traces import TraceRequest, read_trace

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]


def _settings(folder: Path, **changes: object) -> GroupSettings:
    """Two stages of the twin; the deeper one limits to 19 of 32 asked."""
    settings = GroupSettings(
        config=twin_config(),
        quota_bytes=(32 * 2**20,) * 2,
        run_dir=folder / "g",
        name="g",
        pp_size=2,
        pp_layers=(40, 24),
        max_batch_size=16,
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


def _burst(count: int, prompt: int = 300, output: int = 30) -> list[TraceRequest]:
    return [TraceRequest(float(n), prompt + n % 7, output + n % 11) for n in range(count)]


async def test_a_replay_reaches_the_cap_on_every_rank_and_every_request_finishes(
    short_dir: Path, traces_dir: Path
) -> None:
    settings = _settings(short_dir, tp_size=2, quota_bytes=(16 * 2**20,) * 4)  # 4 ranks, 2 a stage
    cap = settings.plan().cap
    assert cap is not None
    requests = read_trace(traces_dir / "azure2023_conv.csv", 150)
    plan = ReplayPlan(requests, None, 50.0, rate=20.0, group=settings)
    async with replay_session(plan, lambda line: None, lambda tally: None) as running:
        summary = await running.summary(await running.run())
        counts = [(await list_slots(address)).counts for address in settings.rank_addresses]
        logs = [path.read_text() for path in settings.run_dir.glob("*.log")]
    assert (summary["finished"], summary["errors"], summary["peak_residents"]) == (150, 0, cap)
    assert (summary["cap"], summary["asked"], summary["limiting_ranks"]) == (cap, 32, [0, 1])
    assert summary["waits_by_reason"]["RESIDENCY_CAP"]["sequences"] > 0
    assert [(count.rows, count.bound) for count in counts] == [(cap + 1, 0)] * 4
    assert not [line for log in logs for line in log.splitlines() if "error" in line.lower()]


async def test_a_killed_rank_holds_admissions_back_and_comes_back_with_recompute(short_dir: Path) -> None:
    """Three long sequences run on over the fall and are told to compute again; short ones wait meanwhile."""
    settings = _settings(short_dir)
    events: list[str] = []
    under_way, pending = asyncio.Event(), asyncio.Event()

    def heard(line: str) -> None:
        events.append(line)
        if "RANK_PENDING" in line:
            pending.set()

    requests = _burst(3, output=1500) + _burst(60, output=60)
    plan = ReplayPlan(requests, 1.0, 4.0, group=settings)
    async with replay_session(
        plan, heard, lambda tally: under_way.set() if tally.finished else None
    ) as running:
        group = running.group
        assert group is not None
        replaying = asyncio.create_task(running.run())
        await under_way.wait()
        group.kill(1)
        assert await group.next_death() == (1, f"rank 1 was ended by SIGKILL (log: {group.log_of(1)})")
        await pending.wait()
        assert not replaying.done()
        await group.restart(1)
        tally = await replaying
    assert (tally.finished, tally.errors) == (63, [])
    assert tally.recomputed >= 3
    told = " ".join(events)
    for words in (
        "sequences are computed again",
        "rank 1 is back with an empty pool",
        "every rank is there",
    ):
        assert words in told, events


async def test_a_late_rank_is_connected_by_itself_and_a_cancel_ends_the_wait_at_once(short_dir: Path) -> None:
    """Facts M15, M16: the wait of a client is patient, and is over when the caller says so."""
    settings = _settings(short_dir, start_after_s={1: 3.0})
    group = LocalGroup(settings)
    try:
        await group.start()
        connecting = asyncio.create_task(Session.connect(group.scheduler_address, executor="impatient"))
        async with OperatorClient(group.scheduler_address) as client:
            while True:
                await asyncio.sleep(0.05)
                try:
                    description = await client.describe()
                except Exception:
                    continue
                if description.ranks[0].HasField("report"):
                    break
        assert not connecting.done()
        began = time.monotonic()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert time.monotonic() - began < 0.5
        await group.wait_ready()
        session = await Session.connect(group.scheduler_address, executor="patient", timeout_s=5)
        assert session.info.seats == settings.plan().cap
        await session.close()
    finally:
        await group.stop()


async def test_a_rank_that_cannot_start_is_one_sentence_with_its_last_words(short_dir: Path) -> None:
    settings = _settings(short_dir, ssm_dtype="float7")
    with pytest.raises(LocalGroupError, match=r"rank \d ended with exit code 2: .*float7") as caught:
        async with LocalGroup(settings):
            raise AssertionError("it must not start")
    assert "Traceback" not in str(caught.value)


def test_up_stops_everything_on_ctrl_c(short_dir: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "stateroom_ops.cli",
        "up",
        "--run-dir",
        str(short_dir),
        "--quota",
        "32MiB",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        lines = []
        for line in up.stderr:
            lines.append(line)
            if "Ctrl-C stops all" in line:
                break
        record = read_record(short_dir / "default")
        assert record is not None
        assert len(record.child_pids) == 3
        told = json.loads(CliRunner().invoke(main, ["status", "--run-dir", str(short_dir), "--json"]).stdout)
        assert (told["cap"], told["asked"], told["limiting_ranks"], told["pending"]) == (
            23,
            128,
            [0, 1],
            False,
        )
        second = CliRunner().invoke(main, ["up", "--run-dir", str(short_dir)])
        assert second.exit_code == 1
        assert "group 'default' runs already" in second.output
        up.send_signal(signal.SIGINT)
        assert up.wait(20) == 130, lines
        assert up.stderr.read() == "all stopped\n"
    assert not [pid for pid in record.child_pids if _is_alive(pid)]
    assert not list((short_dir / "default").glob("*.sock"))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
