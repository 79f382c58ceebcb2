"""A session and pools without processes: first come, first served, one slot each, told one step later."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import torch

from stateroom.client import Chunk, Decisions, Grant, Handle, RankInfo, Recompute, Rejection
from stateroom.errors import StateroomError
from stateroom.residency.reasons import ErrorReason

BOOT = "boot-1"


class FakePool:
    """Two layers of two odd-sized tensors in rows of 1280 bytes, as views of one storage."""

    def __init__(self, rows: int, boot_id: str = BOOT) -> None:
        self.boot_id = boot_id
        self.closed = False
        self.bytes = torch.zeros(rows * 1280, dtype=torch.uint8)
        self.layers = {
            layer: {
                "conv": self._view(torch.bfloat16, rows, 512 * number, (3, 5)),
                "recurrent": self._view(torch.float32, rows, 512 * number + 256, (4, 7)),
            }
            for number, layer in enumerate((4, 9))
        }

    def _view(self, dtype: torch.dtype, rows: int, offset: int, shape: tuple[int, int]) -> torch.Tensor:
        words = self.bytes.view(dtype)
        size = words.element_size()
        return words.as_strided((rows, *shape), (1280 // size, shape[1], 1), offset // size)

    def check(self, handle: Handle, rank: int) -> int:
        if handle.boot_ids[rank] != self.boot_id:
            raise StateroomError(ErrorReason.WRONG_BOOT_ID, f"rank {rank} has another boot id")
        return handle.slot

    def close(self) -> None:
        self.closed = True


@dataclass
class _Sequence:
    prompt_tokens: int
    computed: int = 0
    slot: int = 0


class FakeInfo:
    def __init__(self, ranks: int) -> None:
        self.session_id = "s"
        self.ranks = tuple(RankInfo(rank, f"rank{rank}", BOOT, True) for rank in range(ranks))


class FakeSession:
    """`seats` slots; prompts over `tokens_max` are rejected; a released row is zeroed in every pool."""

    def __init__(
        self, seats: int, pools: list[FakePool], chunk_tokens: int = 100, tokens_max: int = 10_000
    ) -> None:
        self.info = FakeInfo(len(pools))
        self.pools = pools
        self.seats = seats
        self.free = deque(range(1, seats + 1))
        self.queue: dict[str, _Sequence] = {}
        self.held: dict[str, _Sequence] = {}
        self.attached_pools: list[tuple[int, str]] = []
        self.pending_ranks: set[int] = set()
        self.let_go_ids: list[str] = []
        self.parents: dict[str, str] = {}
        self.peak = 0
        self.next: Decisions = Decisions(0)
        self.boot_id = BOOT
        self._chunk_tokens, self._tokens_max = chunk_tokens, tokens_max
        self._step = 0
        self._counter = 0
        self._rejected: list[Rejection] = []
        self._fenced: list[tuple[int, int]] = []

    # facts

    def submit(
        self, sequence_id: str, prompt_tokens: int, max_output_tokens: int, *, traceparent: str = ""
    ) -> None:
        if prompt_tokens < 0:
            raise ValueError("Value out of range")
        self.parents[sequence_id] = traceparent
        if prompt_tokens + max_output_tokens > self._tokens_max:
            self._rejected.append(Rejection(sequence_id, "TOO_MANY_TOKENS", "too long", 0))
            return
        self.queue[sequence_id] = _Sequence(prompt_tokens)

    def finish(self, sequence_id: str, *, last_step: int | None = None, output_tokens: int = 0) -> None:
        self._fenced.append((self._step, self.held.pop(sequence_id).slot))

    def let_go(self, sequence_id: str, *, last_step: int | None = None) -> None:
        self.let_go_ids.append(sequence_id)
        sequence = self.held.pop(sequence_id)
        self._fenced.append((self._step, sequence.slot))
        self.queue[sequence_id] = _Sequence(sequence.prompt_tokens)

    def attached(self, rank: int, boot_id: str) -> None:
        self.attached_pools.append((rank, boot_id))
        self.pending_ranks.discard(rank)

    # questions

    def wait_reason(self, sequence_id: str) -> str | None:
        if sequence_id not in self.queue:
            return None
        return "RANK_PENDING" if self.pending_ranks else "RESIDENCY_CAP"

    async def settle(self) -> None:
        pass

    async def wait(self, seconds: float) -> bool:
        await asyncio.sleep(0.001)  # lets an attach in a thread come through
        return False

    async def step(self, completed_step: int | None = None) -> Decisions:
        self._step += 1
        self._release(completed_step or 0)
        grants = self._admit()
        chunks = self._chunks()
        self.peak = max(self.peak, len(self.held))
        extra, self.next = self.next, Decisions(0)
        return Decisions(
            self._step,
            grants=grants,
            chunks=chunks,
            rejections=self._taken_rejections(),
            recompute=extra.recompute,
            cancelled=extra.cancelled,
            attach=extra.attach,
            residents_count=len(self.held),
            waiting_count=len(self.queue),
            away=extra.away,
        )

    def _release(self, completed_step: int) -> None:
        for last_step, slot in [f for f in self._fenced if f[0] <= completed_step]:
            self._fenced.remove((last_step, slot))
            for pool in self.pools:
                pool.bytes.view(-1, 1280)[slot] = 0
            self.free.append(slot)

    def _admit(self) -> tuple[Grant, ...]:
        grants = []
        while self.free and self.queue and not self.pending_ranks:
            name = next(iter(self.queue))
            sequence = self.held[name] = self.queue.pop(name)
            sequence.slot = self.free.popleft()
            self._counter += 1
            handle = Handle(sequence.slot, (1, self._counter), (self.boot_id,) * len(self.pools))
            grants.append(Grant(name, (handle,), 1, False))
        return tuple(grants)

    def _chunks(self) -> tuple[Chunk, ...]:
        chunks = []
        for name, s in self.held.items():
            tokens = min(self._chunk_tokens, s.prompt_tokens - s.computed)
            if tokens:
                s.computed += tokens
                chunks.append(Chunk(name, s.computed - tokens, tokens, s.computed == s.prompt_tokens))
        return tuple(chunks)

    def _taken_rejections(self) -> tuple[Rejection, ...]:
        taken, self._rejected = tuple(self._rejected), []
        return taken


def lost(session: FakeSession) -> tuple[Recompute, ...]:
    """All that are held, as a recompute tells them."""
    return tuple(Recompute(name, (1, 0), "rank 0 restarted") for name in session.held)
