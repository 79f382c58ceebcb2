"""Small groups of real processes for tests of the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stateroom.client import Session
from stateroom_ops.group_settings import GroupSettings, twin_config
from stateroom_ops.local_group import LocalGroup
from stateroom_ops.operator_client import OperatorClient

__all__ = ["fill", "group", "small"]


def small(folder: Path, cap: int = 4, **changes: object) -> GroupSettings:
    """Two stages of a narrow twin; quota for `cap` slots and one reserved row on the deeper one."""
    values: dict[str, object] = {
        "config": twin_config(factor=16),
        "quota_bytes": (2**30,) * 2,
        "run_dir": folder / "g",
        "name": "g",
        "pp_size": 2,
        "pp_layers": (40, 24),
        "max_batch_size": 16,
        **changes,
    }
    settings = GroupSettings(**values)  # type: ignore[arg-type]
    slot_bytes = settings.plan().ranks[0].state.slot_bytes
    quotas = (slot_bytes * (cap + 1), *settings.quota_bytes[1:])
    return GroupSettings(**{**values, "quota_bytes": quotas})  # type: ignore[arg-type]


@asynccontextmanager
async def group(settings: GroupSettings) -> AsyncIterator[tuple[LocalGroup, Session, OperatorClient]]:
    """Started and ready, with a session and an operator's client."""
    async with LocalGroup(settings, lambda line: None) as running:
        session = await Session.connect(settings.scheduler_address, executor="test", timeout_s=30)
        async with OperatorClient(settings.scheduler_address) as operator:
            yield running, session, operator
        await session.close()


async def fill(session: Session, names: list[str], output: int = 8) -> int:
    """Submits sequences and takes steps until the group is full or nothing waits; the last step."""
    for name in names:
        session.submit(name, prompt_tokens=16, max_output_tokens=output)
    decisions = await session.step()
    await session.settle()
    decisions = await session.step(completed_step=decisions.step)
    return decisions.step
