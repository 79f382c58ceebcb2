"""`python -m cache_svc` as its user types it: one line at start, one sentence for each bad value."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from stateroom.channel import open_sync_channel
from stateroom.errors import from_rpc_error
from stateroom.probe import is_serving
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import CacheServiceStub
from stateroom_ops.group_settings import twin_config

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


@pytest.fixture
def config(short_dir: Path) -> Path:
    path = short_dir / "model.json"
    path.write_text(json.dumps(twin_config(factor=16)))
    return path


def _command(config: Path, *flags: str, quota: str = "64MiB") -> list[str]:
    listen = f"unix:{config.parent}/rank.sock"
    return [
        sys.executable,
        "-m",
        "cache_svc",
        "--config",
        str(config),
        "--quota",
        quota,
        "--listen",
        listen,
        *flags,
    ]


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _refused(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_says_what_it_affords_is_truthful_and_stops_cleanly(config: Path) -> None:
    with _running(_command(config)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("rank 0 listens on unix:"), line
        assert "affords" in line
        address = f"unix:{config.parent}/rank.sock"
        assert is_serving(address, "liveness")
        assert not is_serving(address, "readiness")  # fact M10: no agreement yet
        assert not is_serving(address, "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    left = {path.name for path in config.parent.iterdir() if path.is_socket()}
    assert left == set()


def test_d08_ctrl_c_ends_it_at_once_though_someone_watches(config: Path) -> None:
    """A watcher's endless stream held the stop for two seconds once, and a traceback ended it."""
    with _running(_command(config)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with open_sync_channel(f"unix:{config.parent}/rank.sock") as channel:
            watch = CacheServiceStub(channel).WatchResidency(pb.WatchResidencyRequest(asked=4))
            next(watch)
            process.send_signal(signal.SIGINT)
            with pytest.raises(grpc.RpcError) as ended:
                for _ in watch:
                    pass
            assert from_rpc_error(ended.value).reason is ErrorReason.DRAINING
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "Traceback" not in errors, errors


def test_ctrl_c_while_it_loads_prints_no_traceback(config: Path) -> None:
    with _running([sys.executable, "-X", "importtime", *_command(config)[1:]]) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "click" in line:  # it is in the middle of its imports
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT
        assert "Traceback" not in errors


def test_an_address_in_use_is_one_sentence_and_leaves_no_socket(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"nothing can listen on {address}" in _refused(_command(config, "--listen", address))
    assert not [path for path in config.parent.iterdir() if path.is_socket()]


def test_an_address_open_to_the_network_is_warned_of(config: Path) -> None:
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    with _running(_command(config, "--listen", f"0.0.0.0:{port}")) as process:
        assert process.stdout is not None
        assert f"0.0.0.0:{port}" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert sum("open to the network without TLS" in line for line in errors.splitlines()) == 1


def test_a_used_socket_is_refused_and_its_owner_stays_up(config: Path) -> None:
    with _running(_command(config)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert "is in use by a running process" in _refused(_command(config))
        assert is_serving(f"unix:{config.parent}/rank.sock", "liveness")


def test_a_dead_socket_is_taken_over(config: Path) -> None:
    with _running(_command(config)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        with _running(_command(config)) as second:
            assert second.stdout is not None
            assert second.stdout.readline().startswith("rank 0 listens on")


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        ("0", ("No sequence fits on rank 0", "--quota")),
        ("100KiB", ("No sequence fits on rank 0", "--quota", "bytes")),
        ("lots", ("'lots'", "24.86GiB")),
    ],
)
def test_s23_a_quota_of_less_than_one_slot(config: Path, quota: str, words: tuple[str, ...]) -> None:
    sentence = _refused(_command(config, quota=quota))
    assert all(word in sentence for word in words), sentence


def test_s11_heads_that_do_not_divide_name_both_numbers(config: Path) -> None:
    sentence = _refused(_command(config, "--tp-size", "5"))
    assert "linear_num_" in sentence
    assert "5" in sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "model.json"),
        ("[]", "model.json"),
        ('{"model_type": "no-such-model"}', "no-such-model"),
        ('{"model_type": "qwen3_5_text", "num_hidden_layers": 4}', "layer_types"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_sentence(config: Path, text: str, words: str) -> None:
    config.write_text(text)
    assert words in _refused(_command(config))


def test_a_missing_config_and_a_bad_address_are_named(config: Path) -> None:
    missing = config.with_name("none.json")
    assert str(missing) in _refused(_command(missing))
    assert "host:port" in _refused([*_command(config), "--listen", "nowhere"])
