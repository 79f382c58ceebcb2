"""The time a rank was pending is no lack of progress (rule A9): seen with a killed container."""

from __future__ import annotations

from tests.scheduler.core_group import CoreGroup


def test_a_rank_that_is_back_after_a_long_outage_raises_no_alarm() -> None:
    group = CoreGroup(cap=2, watchdog_steps=3, watchdog_ms=100)
    group.lose(0)
    group.submit("A", "B", "C")
    for _ in range(10):
        group.step(ms=50)
        group.tick()
    group.report(0)
    assert not group.world.ranks.pending_count
    group.tick()  # between its return and the next step
    assert group.world.no_progress == ""
