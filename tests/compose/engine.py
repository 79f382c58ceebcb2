"""A compose project of its own around docker-compose.yml, for tests: v1 (`docker-compose`) or v2 (`docker compose`)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stateroom_ops.operator_client import OperatorClient
from stateroom_ops.status_view import status_object

ROOT = Path(__file__).parents[2]
PACKAGES = ("stateroom", "stateroom_ops", "scheduler_svc", "cache_svc")
SERVICES = ("executor", "scheduler", "rank0", "rank1", "rank2")
COMMAND_SECONDS_MAX = 120
BUILD_SECONDS_MAX = 1800  # a first build fetches torch

# the same digest inside the image and of this checkout: a test of an old image proves nothing
_DIGEST = """
import hashlib, pathlib
files = sorted(str(f) for p in {packages!r} for f in pathlib.Path(p).rglob("*.py"))
print("digest", hashlib.sha256(b"".join(pathlib.Path(f).read_bytes() for f in files)).hexdigest())
"""


def compose_command() -> list[str] | None:
    """v1 or v2, None where neither is installed."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["docker", "compose"]
    return None


def why_no_engine() -> str | None:
    """One line for the skip, None where containers can be run."""
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return "no container engine: DOCKER_HOST is not set and there is no /var/run/docker.sock"
    if compose_command() is None:
        return "neither `docker-compose` nor `docker compose` is installed"
    return None


def checkout_digest() -> str:
    """Of the sources that the image is built from."""
    files = sorted(str(f.relative_to(ROOT)) for p in PACKAGES for f in (ROOT / p).rglob("*.py"))
    return hashlib.sha256(b"".join((ROOT / f).read_bytes() for f in files)).hexdigest()


class Compose:
    """One project: its own name, network, volumes and published port."""

    def __init__(self, name: str, **variables: object) -> None:
        command = compose_command()
        assert command is not None
        self._command = [*command, "--project-name", name, "--file", str(ROOT / "docker-compose.yml")]
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            "STATEROOM_PORT": str(self.port),
            **{key: str(value) for key, value in variables.items()},
        }

    def __call__(self, *arguments: str, seconds_max: int = COMMAND_SECONDS_MAX) -> str:
        """Runs one compose command; its stdout. A failure shows what it said."""
        ran = subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
        assert ran.returncode == 0, f"compose {' '.join(arguments)}: {ran.stderr[-2000:]}"
        return ran.stdout

    def image_digest(self) -> str:
        """Of the sources in the image; builds it where it is missing."""
        code = _DIGEST.format(packages=PACKAGES)
        told = self(
            "run", "--rm", "--no-deps", "-T", "rank2", "python", "-c", code, seconds_max=BUILD_SECONDS_MAX
        )
        found = re.search(r"digest ([0-9a-f]{64})", told)
        assert found is not None, told
        return found.group(1)

    def exit_codes(self) -> dict[str, int]:
        """Of the services that have ended."""
        return {
            name: int(code)
            for name in SERVICES
            for code in re.findall(rf"[_-]{name}[_-].*Exit(?:ed \(| )(\d+)", self("ps", "-a"))
        }

    def logs(self, *services: str) -> str:
        """Plain lines of all time."""
        return self("logs", "--no-color", "--no-log-prefix", *services)

    def summary(self) -> dict[str, Any]:
        """What the executor printed at its end."""
        text = self.logs("executor")
        found = re.search(r"^\{$.*^\}$", text, re.MULTILINE | re.DOTALL)
        assert found is not None, text[-2000:]
        summary: dict[str, Any] = json.loads(found.group(0))
        return summary

    def status(self) -> dict[str, Any]:
        """What `stateroom status --json` shows, over the published port."""

        async def ask() -> dict[str, Any]:
            async with OperatorClient(self.address) as client:
                return status_object(self.address, await client.describe())

        return asyncio.run(ask())

    def until(self, what: str, probe: Callable[[], Any], seconds_max: float) -> Any:
        """Asks again until the answer is true; AssertionError with the logs' end when it never is."""
        deadline = time.monotonic() + seconds_max
        while not (answer := probe()):
            assert time.monotonic() < deadline, f"{what}: not within {seconds_max} s\n{self.logs()[-3000:]}"
            time.sleep(0.25)
        return answer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
