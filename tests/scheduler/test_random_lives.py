"""Random executors over the core: nothing breaks on the way, and from wherever they come all things end.

Beside the naive model, which knows fewer facts and compares every verdict, this one knows every fact and
compares nothing: counts hold after each event, no slot is bound twice, and nothing stays behind.
STATEROOM_SOAK=1 makes it long (`make soak`).
"""

from __future__ import annotations

import os

import pytest

from tests.scheduler.random_executor import RandomExecutor

SEEDS = 20_000 if os.environ.get("STATEROOM_SOAK") else 200
ACTS_COUNT = 150


@pytest.mark.parametrize("start", range(0, SEEDS, SEEDS // 4))
def test_random_lives_come_to_their_end(start: int) -> None:
    for seed in range(start, start + SEEDS // 4):
        try:
            _live(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def _live(seed: int) -> None:
    group = RandomExecutor(seed)
    for _ in range(ACTS_COUNT):
        group.act()
    group.end()
    world = group.world
    assert [*group.waits, *group.holds, *group.fenced] == []
    assert not world.sequences
    assert [len(rank.bound) for rank in group.ranks] == [0] * len(group.ranks)
    assert (world.held_slots, world.reclaiming_slots, world.inits_binding) == (0, 0, 0)
    assert world.mirror.grantable_count == world.seats
    assert world.refused_by_reason["SLOT_NOT_FREE"] == 0
