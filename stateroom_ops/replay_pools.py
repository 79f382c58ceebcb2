"""The pools of all ranks as a replaying executor has them: attached, stamped, exchanged when a rank is new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tenacity import AsyncRetrying, retry_if_exception, stop_before_delay, wait_fixed

from stateroom.client import Grant, Handle, RankInfo
from stateroom.errors import StateroomError
from stateroom.residency.reasons import ErrorReason
from stateroom_ops.stamps import Pool, PoolStamps, Rows

__all__ = ["AttachablePool", "ReplayPools"]

ATTACH_SECONDS_MAX = 60.0
ATTACH_AGAIN_SECONDS = 0.05


class AttachablePool(Pool, Protocol):
    """An attached pool, as `stateroom.attach` gives it."""

    boot_id: str

    def check(self, handle: Handle, rank: int) -> int:
        """The row of a handle; raises for one of another pool (rule C3)."""

    def close(self) -> None:
        """Detaches."""


Attach = Callable[[str], AttachablePool]


def _passes(error: BaseException) -> bool:
    return isinstance(error, StateroomError) and error.reason in (None, ErrorReason.NOT_COMMITTED)


class ReplayPools:
    """All ranks with recurrent layers. A fault is a sentence in the list that each check returns."""

    def __init__(self, attach: Attach) -> None:
        self._attach = attach
        self._pools: dict[int, AttachablePool] = {}
        self._stamps: dict[int, PoolStamps] = {}
        self._attaching: dict[int, asyncio.Task[RankInfo]] = {}

    async def attach(self, rank: RankInfo) -> RankInfo:
        """Maps a rank's pool, and lets go of an older one first; the rank with the boot id that is mapped.

        A rank that has started again answers NOT_COMMITTED until it has heard the agreement: that, and a
        transport that fails, is waited for, ATTACH_SECONDS_MAX at most. Errors: StateroomError.
        """
        self._drop(rank.rank)
        if not rank.has_pool:
            return rank
        retrying = AsyncRetrying(
            retry=retry_if_exception(_passes),
            wait=wait_fixed(ATTACH_AGAIN_SECONDS),
            stop=stop_before_delay(ATTACH_SECONDS_MAX),
            reraise=True,
            sleep=asyncio.sleep,
        )
        # the call blocks on a socket: not on the loop that answers the scheduler (fact M8)
        pool: AttachablePool = await retrying(asyncio.to_thread, self._attach, rank.address)
        self._pools[rank.rank], self._stamps[rank.rank] = pool, PoolStamps(pool)
        return replace(rank, boot_id=pool.boot_id)

    def attach_soon(self, rank: RankInfo) -> None:
        """The same beside the loop: what runs on the other ranks goes on. `attached` hands it out."""
        self._drop(rank.rank)
        if (older := self._attaching.pop(rank.rank, None)) is not None:
            older.cancel()
        self._attaching[rank.rank] = asyncio.ensure_future(self.attach(rank))

    def attached(self) -> list[RankInfo]:
        """Ranks whose pool was mapped since the last call. Errors: StateroomError of one that was not."""
        done = [rank for rank, task in self._attaching.items() if task.done()]
        return [self._attaching.pop(rank).result() for rank in done]

    def _drop(self, rank: int) -> None:
        self._stamps.pop(rank, None)
        pool = self._pools.pop(rank, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Lets go of all."""
        for task in self._attaching.values():
            task.cancel()
        for rank in list(self._pools):
            self._drop(rank)

    def faults_of_grant(self, grant: Grant) -> list[str]:
        """A new owner's row must be of the attached pools and hold zeros (rules C2, C3)."""
        faults = []
        for rank, pool in self._pools.items():
            for handle in grant.handles:
                try:
                    slot = pool.check(handle, rank)
                except StateroomError as error:
                    faults.append(f"{grant.sequence_id}: {error.message}")
                    continue
                if not self._stamps[rank].is_clean(slot):
                    faults.append(
                        f"{grant.sequence_id}: row {slot} of rank {rank} was not zero at its first use"
                    )
        return faults

    def faults_of_rows(self, rows: Rows, names: list[str]) -> list[str]:
        """Every row must hold what its sequence wrote last."""
        faults = []
        for rank, stamps in self._stamps.items():
            for position in stamps.wrong(rows):
                slot = int(rows.slots[position])
                faults.append(
                    f"{names[position]}: row {slot} of rank {rank} holds {stamps.found(slot)} where "
                    f"{(int(rows.hashes[position]), int(rows.counts[position]))} was written"
                )
        return faults

    def write(self, rows: Rows) -> None:
        """Stamps the rows on every rank."""
        for stamps in self._stamps.values():
            stamps.write(rows)
