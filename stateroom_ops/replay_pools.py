"""The pools of all ranks as a replaying executor has them: attached, stamped, exchanged when a rank is new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from stateroom.client import Grant, Handle, RankInfo
from stateroom.errors import StateroomError
from stateroom_ops.stamps import Pool, PoolStamps, Rows

__all__ = ["AttachablePool", "ReplayPools"]


class AttachablePool(Pool, Protocol):
    """An attached pool, as `stateroom.attach` gives it."""

    boot_id: str

    def check(self, handle: Handle, rank: int) -> int:
        """The row of a handle; raises for one of another pool (rule C3)."""

    def close(self) -> None:
        """Detaches."""


Attach = Callable[[str], AttachablePool]


class ReplayPools:
    """All ranks with recurrent layers. A fault is a sentence in the list that each check returns."""

    def __init__(self, attach: Attach) -> None:
        self._attach = attach
        self._pools: dict[int, AttachablePool] = {}
        self._stamps: dict[int, PoolStamps] = {}

    async def attach(self, ranks: Iterable[RankInfo]) -> list[RankInfo]:
        """Maps these ranks' pools, letting go of older ones first; those that now are attached."""
        attached = []
        for rank in ranks:
            if rank.has_pool:
                self._drop(rank.rank)
                # the call blocks on a socket: not on the loop that answers the scheduler (fact M8)
                pool = await asyncio.to_thread(self._attach, rank.address)
                self._pools[rank.rank] = pool
                self._stamps[rank.rank] = PoolStamps(pool)
                attached.append(RankInfo(rank.rank, rank.address, pool.boot_id, True))
            else:
                attached.append(rank)
        return attached

    def _drop(self, rank: int) -> None:
        self._stamps.pop(rank, None)
        pool = self._pools.pop(rank, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Lets go of all."""
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
