"""Weighted shares under contention, and no starvation of large demands (rule A4)."""

from __future__ import annotations

import random

from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState
SEED = 7


def _saturate(weights: tuple[tuple[str, int], ...], tenants: tuple[str, ...], rounds: int) -> dict[str, int]:
    """Two residents end in each round; every tenant has always more waiting. Admitted tokens by tenant."""
    random.seed(SEED)
    group = CoreGroup(cap=8, max_step_tokens=100_000, max_chunk_tokens=4096, tenant_weights=weights)
    group.check = lambda: None  # type: ignore[method-assign]
    tokens = dict.fromkeys(tenants, 0)
    counted: set[str] = set()
    number = 0
    for _ in range(rounds):
        for tenant in tenants:
            for _ in range(2):
                number += 1
                prompt, output = random.randint(10, 400), random.randint(10, 400)
                group.submit(f"{tenant}{number}", prompt=prompt, output=output, tenant=tenant)
        group.step()
        for name in group.granted_order[len(counted) :]:
            arrival = group.arrivals[name]
            tokens[arrival.tenant] += arrival.prompt_tokens + arrival.max_output_tokens
            counted.add(name)
        if len(group.residents) == 8:
            group.finish(*group.residents[:2])
    return tokens


def test_a04_two_tenants_of_3_to_1_get_3_to_1_under_saturation() -> None:
    tokens = _saturate((("a", 3), ("b", 1)), ("a", "b"), rounds=800)
    share = tokens["a"] / (tokens["a"] + tokens["b"])
    print(f"seed {SEED}: tokens {tokens}, share of a {share:.4f}")
    assert abs(share - 0.75) <= 0.05 * 0.75


def test_a04_a_tenant_alone_gets_everything() -> None:
    group = CoreGroup(cap=8, max_step_tokens=10_000, tenant_weights=(("a", 1), ("b", 99)))
    group.submit(*(f"q{n}" for n in range(9)), tenant="a")
    assert len(group.residents) == 8


def test_a04_a_tenant_that_comes_back_has_saved_nothing_up() -> None:
    """b was away for 100 admissions of a; then they share evenly, b gets no run of its own."""
    group = CoreGroup(cap=1, max_step_tokens=10_000)
    for n in range(100):
        group.submit(f"a{n}", tenant="a")
    for _ in range(50):
        group.step()
        group.finish(*group.residents)
    for n in range(100, 120):
        group.submit(f"b{n}", tenant="b")
    first = len(group.granted_order)
    for _ in range(20):
        group.step()
        group.finish(*group.residents)
    order = [name[0] for name in group.granted_order[first : first + 20]]
    assert abs(order.count("b") - 10) <= 1, order


def test_a04_a_large_demand_is_not_starved() -> None:
    """Demand 3 in a stream of demand 1: admitted within starvation_ms plus one release time each."""
    group = CoreGroup(cap=4, starvation_ms=1_000)
    names = [f"s{n}" for n in range(4)]
    group.submit(*names)
    group.step()
    group.submit("big", demand=3)
    waited_ms = 0
    number = 4
    while group.state("big") is S.WAITING:
        number += 1
        group.submit(f"s{number}")
        group.step(ms=100)
        group.finish(group.residents[0])  # one release every 100 ms
        waited_ms += 100
        assert waited_ms <= 1_000 + 4 * 100, "starved"
    assert group.state("big") is not S.WAITING


def test_a04_strict_lets_nobody_pass() -> None:
    group = CoreGroup(cap=2, strict_order=True)
    group.submit("R")
    group.submit("big", demand=2)
    group.submit("small")
    assert group.residents == ["R"]
    assert str(group.reason("small")) == "POLICY_ORDER"
    group.finish("R")
    assert group.residents == ["big"]


def test_a04_waiting_is_worth_priority() -> None:
    """One level is worth aging_ms: an old one of priority 0 goes before a young one of priority 1."""
    group = CoreGroup(cap=1, aging_ms=1_000)
    group.submit("R")
    group.submit("old")
    group.tick(1_001)
    group.submit("young", priority=1)
    group.submit("urgent", priority=3)
    group.finish("R")
    group.step()
    group.finish("urgent")
    assert group.residents == ["old"]
