"""A rank link connects again after every fault, and a cancel ends it at once (FACTS M15, M16)."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_svc.core.events import Event, RankLost
from scheduler_svc.rank_link import RankLink, _Broken


class Owner:
    """What a link needs of the driver."""

    term = 1
    boot_id = "leader"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def handle(self, event: Event) -> None:
        self.events.append(event)


class SilentLink(RankLink):
    """A link whose watch goes silent on every connection, while its ordered stream hangs: a container that
    was killed with its network sends no end of the stream."""

    connections = 0

    async def _reach(self) -> None:
        self.connections += 1

    async def _query(self) -> None:
        pass

    async def _watch(self) -> None:
        await asyncio.sleep(0)
        raise _Broken("was silent")

    async def _carry_out(self) -> None:
        await asyncio.Event().wait()


async def test_a_silent_rank_is_lost_and_connected_again_each_time() -> None:
    owner = Owner()
    link = SilentLink(owner, 0, "unix:/nowhere", 8, None, [])  # type: ignore[arg-type]
    task = asyncio.create_task(link.run())
    async with asyncio.timeout(5):
        while link.connections < 3:
            assert not task.done(), "the link gave up"
            await asyncio.sleep(0.01)
    assert [type(event) for event in owner.events[:2]] == [RankLost, RankLost]
    task.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await task
