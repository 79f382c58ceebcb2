"""Runs every script of this folder against the core and against real services.

`pytest tests/scenarios --rewrite` writes the core's output into the scripts, for a change that is
understood; the real services are always compared with what the scripts say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.core_world import CoreWorld
from tests.scenarios.script import Block, Script, read, rewritten, run
from tests.scenarios.service_world import ServiceWorld

SCRIPTS = [read(path) for path in sorted(Path(__file__).parent.glob("*.txt"))]


def _expected(script: Script) -> list[str]:
    return [part.output for part in script.parts if isinstance(part, Block)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.path.stem)
async def test_script_over_the_core(script: Script, request: pytest.FixtureRequest) -> None:
    outputs = await run(script, CoreWorld())
    if request.config.getoption("--rewrite"):
        script.path.write_text(rewritten(script, outputs))
        return
    assert outputs == _expected(script)


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if not script.core_only], ids=lambda script: script.path.stem
)
async def test_script_over_real_services(script: Script, short_dir: Path) -> None:
    async with ServiceWorld(short_dir) as world:
        assert await run(script, world) == _expected(script)


def test_an_unknown_command_is_named(tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "bad.txt"
    path.write_text("leap A\n----\n")
    with pytest.raises(ValueError, match="'leap A' is no command"):
        asyncio.run(run(read(path), CoreWorld()))
