"""`python -m scheduler_svc` as its user types it, and what it does with messages that are wrong."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from stateroom.channel import open_sync_channel
from stateroom.client import SyncSession
from stateroom.probe import is_serving
from tests.services.groups import fill, group, small

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def _command(folder: Path, *flags: str, ranks: str = "") -> list[str]:
    return [
        *(sys.executable, "-m", "scheduler_svc", "--ranks", ranks or f"unix:{folder}/r0.sock"),
        *(
            "--max-batch-size",
            "8",
            "--listen",
            f"unix:{folder}/s.sock",
            "--state-dir",
            str(folder / "s"),
            *flags,
        ),
    ]


def _refused(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_an_unreachable_rank_is_given_up_with_its_address(short_dir: Path) -> None:
    sentence = _refused(_command(short_dir, "--connect-timeout", "1"))
    assert f"rank 0 at unix:{short_dir}/r0.sock did not answer within 1 s" in sentence
    assert "--ranks" in sentence


def test_m15_ctrl_c_while_it_waits_for_a_rank_ends_it(short_dir: Path) -> None:
    with subprocess.Popen(
        _command(short_dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        assert is_serving(f"unix:{short_dir}/s.sock", "liveness")
        assert not is_serving(f"unix:{short_dir}/s.sock", "readiness")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_d06_two_schedulers_do_not_share_a_term_file(short_dir: Path) -> None:
    with subprocess.Popen(
        _command(short_dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        second = [part.replace("/s.sock", "/t.sock") for part in _command(short_dir)]
        assert "is locked by a running scheduler" in _refused(second)
        assert is_serving(f"unix:{short_dir}/s.sock", "liveness")
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--chunk-unit", "512", "--max-chunk", "16"), "chunk_unit_tokens is 512"),
        (("--warmup", "1,x"), "1,2,4,8"),
        (("--tenants", "a"), "team-a=3"),
        (("--listen", "nowhere"), "host:port"),
    ],
)
def test_a_bad_flag_is_one_sentence(short_dir: Path, flags: tuple[str, ...], words: str) -> None:
    assert words in _refused(_command(short_dir, *flags))


def test_ranks_named_twice(short_dir: Path) -> None:
    address = f"unix:{short_dir}/r.sock"
    assert "names an address twice" in _refused(_command(short_dir, ranks=f"{address},{address}"))


async def test_wrong_arrivals_are_typed_rejections_and_the_stream_goes_on(short_dir: Path) -> None:
    async with group(small(short_dir, max_seq_len=1000)) as (_, session, _operator):
        await fill(session, ["used"])
        session.submit("used", 16, 8)
        session.submit("long", 900, 101)
        session.submit("empty", 0, 8)
        session.submit("negative", -5, 8)
        session.submit("bad id!", 16, 8)
        session.submit("good", 16, 8)
        decisions = await session.step()
        reasons = {r.sequence_id: r.reason for r in decisions.rejections}
        assert reasons == {
            "used": "SEQUENCE_ID_IN_USE",
            "long": "TOO_MANY_TOKENS",
            "empty": "INVALID_REQUEST",
            "negative": "INVALID_REQUEST",
            "bad id!": "INVALID_REQUEST",
        }
        long = next(r for r in decisions.rejections if r.sequence_id == "long")
        assert "1001 together, and the longest sequence is 1000" in long.message
        await session.settle()
        assert {"used", "good"} <= {*session.held, *(g.sequence_id for g in (await session.step()).grants)}


async def test_both_services_offer_reflection_and_truthful_health(short_dir: Path) -> None:
    settings = small(short_dir)
    async with group(settings):
        for address, name in (
            (settings.scheduler_address, "stateroom.v1.SchedulerService"),
            (settings.rank_addresses[1], "stateroom.v1.CacheService"),
        ):
            found = await asyncio.to_thread(_services, address)
            assert {name, "grpc.health.v1.Health"} <= found
            for health in ("", "readiness", "liveness", name):
                assert await asyncio.to_thread(is_serving, address, health)


def _services(address: str) -> set[str]:
    with open_sync_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = next(stub.ServerReflectionInfo(iter([request])))
        return {service.name for service in answer.list_services_response.service}


async def test_the_synchronous_session_is_the_same(short_dir: Path) -> None:
    settings = small(short_dir, cap=2)
    async with group(settings) as (running, _, operator):
        await asyncio.to_thread(_drive_synchronously, settings.scheduler_address)
        assert (await operator.describe()).residents == 0
        assert running is not None


def _drive_synchronously(address: str) -> None:
    session = SyncSession.connect(address, executor="thread", timeout_s=20)
    for name in ("a", "b", "c"):
        session.submit(name, 16, 4)
    session.step()
    session.settle()
    decisions = session.step(completed_step=1)
    assert sorted(session.held) == ["a", "b"]
    assert session.wait_reasons() == {"c": "RESIDENCY_CAP"}
    assert "limited by rank 0" in session.wait_detail("c")
    ended = 0
    while session.held or session.waiting:
        for name in list(session.held):
            session.finish(name)
            ended += 1
        decisions = session.step(completed_step=decisions.step)
        session.settle()
    assert ended == 3
    session.step(completed_step=decisions.step)
    session.close()
