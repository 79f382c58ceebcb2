"""512 requests of 1000 + 1000 tokens over KV pages for 118 full-length sequences.

Sized on the whole length nothing is ever preempted; sized on half of it, or not at all, the engine runs
out of pages and stops residents by itself, and everything still ends (section 5; TRT-LLM#17440).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_svc.core.events import EnginePreempted, Finished, KvReported
from tests.scheduler.core_group import CoreGroup

PAGE, PROMPT, OUTPUT = 100, 1000, 1000
FULL_PAGES = -(-(PROMPT + OUTPUT + 1) // PAGE)
TOTAL = 118 * FULL_PAGES
COUNT = 512


class Engine:
    """Accounts pages token by token; when they run out it stops the youngest resident."""

    def __init__(self, group: CoreGroup, claimed_output: int, state_kept: bool) -> None:
        self.group, self.state_kept = group, state_kept
        self.tokens: dict[str, int] = {}  # computed and generated, of residents
        self.saved: dict[str, int] = {}  # in host memory
        self.preemptions = self.recomputed_tokens = self.steps = self.most_residents = 0
        self.finished: set[str] = set()
        group.check = lambda: None  # type: ignore[method-assign]
        self._report()
        names = [f"q{n}" for n in range(COUNT)]
        group.submit(*names, prompt=PROMPT, output=claimed_output)

    def _pages(self) -> int:
        return sum(-(-tokens // PAGE) for tokens in self.tokens.values())

    def _report(self) -> KvReported:
        fact = KvReported(PAGE, TOTAL, max(0, TOTAL - self._pages()))
        self.group.send(fact, completed=self.group.step_number)
        return fact

    def step(self) -> None:
        group = self.group
        self.steps += 1
        tell = group.step()
        self.most_residents = max(self.most_residents, len(group.residents))
        for name in group.residents:
            if name not in self.tokens and name in group.grants:
                self.tokens[name] = self.saved.pop(name, 0)
        for chunk in tell.decisions.chunks:
            self.tokens[chunk.sequence_id] = chunk.start + chunk.tokens
        chunked = {chunk.sequence_id for chunk in tell.decisions.chunks}
        for name, tokens in self.tokens.items():
            if name not in chunked and tokens >= PROMPT:
                self.tokens[name] = tokens + 1
        facts: list[object] = []
        while self._pages() > TOTAL:
            facts.append(self._stop(max(self.tokens, key=lambda name: group.grants[name].generation)))
        for name in [name for name, tokens in self.tokens.items() if tokens >= PROMPT + OUTPUT]:
            del self.tokens[name]
            self.finished.add(name)
            facts.append(Finished(name, group.grants[name].generation, group.step_number))
        facts.append(KvReported(PAGE, TOTAL, TOTAL - self._pages()))
        group.send(*facts, completed=group.step_number)  # type: ignore[arg-type]

    def _stop(self, name: str) -> EnginePreempted:
        tokens = self.tokens.pop(name)
        self.preemptions += 1
        if self.state_kept:
            self.saved[name] = tokens
        else:
            self.recomputed_tokens += tokens
        generation = self.group.grants[name].generation
        return EnginePreempted(name, generation, self.group.step_number, self.state_kept)

    def run(self) -> None:
        while len(self.finished) < COUNT:
            assert self.steps < 40_000, f"wedged with {len(self.finished)} finished"
            self.step()


def _group(full_length: bool) -> CoreGroup:
    return CoreGroup(
        cap=None,
        ranks=1,
        asked=COUNT,
        kv_full_length=full_length,
        max_step_tokens=16_384,
        max_chunk_tokens=1024,
    )


def test_full_length_finishes_all_with_0_preemptions() -> None:
    engine = Engine(_group(full_length=True), OUTPUT, state_kept=False)
    engine.run()
    assert engine.most_residents == 118
    print(f"full length: {engine.steps} steps, {engine.preemptions} preemptions")
    assert engine.preemptions == 0


VARIANTS: dict[str, Callable[[], Engine]] = {
    "half length, computed again": lambda: Engine(_group(True), OUTPUT // 2 - PROMPT // 2 + 1, False),
    "no guarantee, computed again": lambda: Engine(_group(False), OUTPUT, False),
    "no guarantee, state kept": lambda: Engine(_group(False), OUTPUT, True),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_less_than_full_length_over_admits_and_still_ends(variant: str) -> None:
    engine = VARIANTS[variant]()
    engine.run()
    assert engine.most_residents > 118
    print(
        f"{variant}: {engine.steps} steps, {engine.preemptions} preemptions, "
        f"{engine.recomputed_tokens} tokens computed again"
    )
    assert engine.preemptions > 0
