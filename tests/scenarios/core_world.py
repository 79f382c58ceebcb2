"""A script's world over the pure core, with ranks that are plain ledgers."""

from __future__ import annotations

from scheduler_svc.core.events import Arrival, Cancelled, Fact, Finished, LetGo, Suspension, TransferReported
from stateroom.residency.answer import Bounded, Unbounded
from tests.scheduler.core_group import CoreGroup

__all__ = ["CoreWorld", "told"]

RENAMED = {"max_tokens": "max_step_tokens", "unit": "chunk_unit_tokens"}


def told(number: int, decode: int, **lists: list[str]) -> str:
    """One line of a step, the same in every world."""
    parts = [f"step {number}: decode {decode}"]
    parts += [f"{word} {', '.join(rows)}" for word, rows in lists.items() if rows]
    return "; ".join(parts)


class CoreWorld:
    """See tests/scenarios/script.py."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._granted = 0
        self._shown: dict[str, set[str]] = {"rejected": set(), "recompute": set(), "stop": set()}

    async def group(self, cap: int = 1, ranks: int = 2, asked: int = 16, **settings: int | str) -> None:
        renamed = {RENAMED.get(name, name): value for name, value in settings.items()}
        if "max_step_tokens" in renamed:
            renamed.setdefault("max_chunk_tokens", renamed["max_step_tokens"])
        if renamed.pop("policy", "") == "strict":
            renamed["strict_order"] = 1
        group = self._group = CoreGroup(cap, ranks=ranks, asked=asked, start=False, **renamed)
        for rank in group.ranks:  # the first rank limits
            rank.answer = Unbounded() if rank.number else Bounded(cap)
        group.start()

    def submit(
        self, name: str, kind: str = "context", prompt: int = 16, output: int = 8, **fields: int | str
    ) -> None:
        arrival = Arrival(name, kind, prompt, output, **fields)  # type: ignore[arg-type]
        self._group.arrivals[name] = arrival
        self._facts.append(arrival)

    def finish(self, name: str) -> None:
        self._facts.append(Finished(name, self._group.grants[name].generation, self._group.step_number))

    def cancel(self, name: str) -> None:
        self._facts.append(Cancelled(name))

    def transfer(self, name: str, event: str) -> None:
        self._facts.append(TransferReported(name, self._group.grants[name].generation, event))

    def suspend(self, name: str, suspended: bool) -> None:
        self._facts.append(Suspension(name, self._group.grants[name].generation, suspended))

    def let_go(self, name: str) -> None:
        told = {**self._group.recompute, **self._group.preemptions}[name]
        self._facts.append(LetGo(name, told.generation, self._group.step_number))

    async def restart(self, rank: int) -> None:
        self._group.restart(rank)

    def tick(self, ms: int) -> None:
        self._group.tick(ms)

    def drain(self) -> None:
        self._group.drain()

    async def step(self) -> str:
        group = self._group
        facts, self._facts = self._facts, []
        # ends first, as the services order a message's facts
        facts.sort(key=lambda fact: isinstance(fact, Arrival))
        tell = group.step(*facts)
        granted, self._granted = group.granted_order[self._granted :], len(group.granted_order)
        return told(
            tell.step,
            tell.decode_count,
            chunks=[f"{c.sequence_id} {c.start}+{c.tokens}" for c in tell.decisions.chunks],
            granted=[
                f"{name} in {','.join(map(str, group.grants[name].slots)) or 'none'}" for name in granted
            ],
            **{word: self._new(word, found) for word, found in self._found().items()},
        )

    def _new(self, word: str, found: list[str]) -> list[str]:
        new = sorted(set(found) - self._shown[word])
        self._shown[word].update(found)
        return new

    def _found(self) -> dict[str, list[str]]:
        group = self._group
        return {
            "rejected": [f"{name} {r.reason}" for name, r in group.rejected.items()],
            "recompute": [f"{name}/{r.generation[1]}" for name, r in group.recompute.items()],
            "stop": [f"{name}/{p.generation[1]}" for name, p in group.preemptions.items()],
        }

    async def show(self) -> str:
        group = self._group
        holders = [f"{s.id} {s.state}" for s in group.world.residents.values()]
        waiting = [f"{name} {group.reason(name)}" for name in group.waiting]
        return f"residents: {', '.join(sorted(holders)) or '-'}\nwaiting: {', '.join(sorted(waiting)) or '-'}"

    async def why(self, name: str) -> str:
        e = self._group.explain(name)
        state = e.state.value if e.state is not None else e.outcome
        ranks = ",".join(map(str, e.limiting_ranks)) or "-"
        return f"{name}: {state}, {e.reason or '-'}, {e.position} ahead, cap {e.cap}, {e.residents} hold, limited by {ranks}"
