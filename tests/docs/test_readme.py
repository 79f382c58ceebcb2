"""What the README shows is run: its executor against a local group, its commands against the command line."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stateroom_ops.cli import main
from stateroom_ops.group_settings import GroupSettings, twin_config
from stateroom_ops.local_group import LocalGroup
from stateroom_ops.operator_client import OperatorClient

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{len(found)} {language} blocks"
    return str(found[0])


@pytest.mark.processes
async def test_the_executor_runs_against_a_local_group(short_dir: Path) -> None:
    settings = GroupSettings(
        config=twin_config(), quota_bytes=(4 * 2**20,) * 2, run_dir=short_dir / "g", name="g", pp_size=2
    )
    cap = settings.plan().cap
    assert cap is not None
    assert cap < 3, "one of the three requests has to wait"
    async with LocalGroup(settings, lambda line: None):
        ran = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _block("python"),
            settings.scheduler_address,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(ran.communicate(), 60)
        assert (ran.returncode, err.decode()) == (0, "")
        assert re.fullmatch(r"rows \{'req-0': \[\d, \d\], 'req-1': .*, 'req-2': .*\}\n", out.decode()), out
        async with OperatorClient(settings.scheduler_address) as operator:
            told = await operator.describe()
        assert (told.residents, told.waiting, told.peak_residents) == (0, 0, cap)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^stateroom (\w+)", README, re.MULTILINE))))
def test_every_command_that_it_names_is_there(command: str) -> None:
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
