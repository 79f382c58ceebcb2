"""The driver of one rank: owns the pool, the scrub thread, the watchers and the leader's stream.

Everything but zeroing and building happens on one event loop. The ledger changes before anything is
awaited, so a confirmation always tells what stands.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from cache_svc import convert
from cache_svc.core.effects import BuildPool, Effect, KeepTerm, ReplaceLeader, Scrub
from cache_svc.core.rank import RankCore
from cache_svc.pool import Pool, PoolError
from cache_svc.settings import Settings
from cache_svc.term_store import TermStore, TermStoreError
from cache_svc.watchers import Watchers
from stateroom.ordered_stream import OrderedStream
from stateroom.residency.answer import Bounded, Unbounded
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import raw_slots
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.wire_words import answer_from, answer_to

__all__ = ["RankDriver"]

INTEGRITY_SECONDS = 10.0
BindStream = OrderedStream[pb.BindResponse]
T = TypeVar("T")


class RankDriver:
    """`on_committed` hears that the ledger stands; `attached_count` says how many workers are attached."""

    def __init__(
        self, settings: Settings, on_committed: Callable[[], None], attached_count: Callable[[], int]
    ) -> None:
        self.settings = settings
        self._store = TermStore(settings.state_dir)
        self.core = RankCore(uuid.uuid4().hex, settings.terms, *self._store.load())
        self.pool: Pool | None = None
        self._on_committed, self._attached_count = on_committed, attached_count
        self._stream: BindStream | None = None
        self.watchers = Watchers()
        self._building = asyncio.Lock()
        self._stopping = threading.Event()  # read by the thread that takes the pool's memory
        self._scrubber = ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._background: set[asyncio.Task[Any]] = set()
        self._log = structlog.get_logger().bind(rank=settings.parallel.rank)

    async def check_on_idle(self) -> None:
        """Looks at the invariants now and then; a broken one is said, never fatal (scenario L22)."""
        while True:
            await asyncio.sleep(INTEGRITY_SECONDS)
            for sentence in self.core.ledger.check_integrity() if self.core.ledger else ():
                self._log.error("integrity", broken=sentence)

    async def close(self) -> None:
        """Ends the streams, a build and the scrubs; the pool's memory lives while a worker maps it."""
        self._stopping.set()
        if self._stream is not None:
            self._stream.end(_stops())
        await self.watchers.tell()
        self._scrubber.shutdown(wait=True, cancel_futures=True)
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    def check_serving(self) -> None:
        """Refuses new work while the service stops."""
        if self._stopping.is_set():
            raise _stops()

    # ---- residency ----

    def residency(self, asked: int) -> pb.ResidencyQueryResponse:
        """The local answer beside the agreed one, with every term of the sum."""
        return convert.residency_to(self.core, self.settings, asked, self._attached_count())

    async def set_quota(self, request: pb.SetQuotaRequest) -> pb.SetQuotaResponse:
        """Another quota; every watcher hears it at once (rule B8)."""
        previous_bytes = self.core.terms.quota_bytes
        sentence = self.core.set_quota(request.quota_bytes, request.rank_boot_id)
        self._log.info("quota", bytes=request.quota_bytes, before=previous_bytes, says=sentence)
        await self.watchers.tell()
        n = raw_slots(self.core.terms)
        return pb.SetQuotaResponse(
            affords=answer_to(Unbounded() if n is None else Bounded(n)),
            previous_quota_bytes=previous_bytes,
            built_slots=self.core.built_slots(),
            sentence=sentence,
        )

    async def commit(self, request: pb.CommitResidencyRequest) -> pb.CommitResidencyResponse:
        """Takes the agreement and builds the pool, to the end even if the caller leaves meanwhile.

        A build that a broken call cut off would keep its memory and belong to nobody.
        """
        self.check_serving()
        return await asyncio.shield(self._in_background(self._commit(request)))

    async def _commit(self, request: pb.CommitResidencyRequest) -> pb.CommitResidencyResponse:
        async with self._building:  # a repeated commit waits for the first one's answer
            self._hear(request.term, request.leader_boot_id)
            effects = self.core.commit(
                request.term,
                request.leader_boot_id,
                request.rank_boot_id,
                answer_from(request.agreed),
                request.asked,
                request.reserved_slots,
            )
            try:
                for build in effects:
                    await self._build(build, request.reserved_slots)
            finally:
                await self.watchers.tell()
        ledger = self.core.ledger
        assert ledger is not None, "a commit without a ledger"
        return pb.CommitResidencyResponse(
            rows=ledger.rows,
            pool_bytes=self.pool.size_bytes if self.pool is not None else 0,
            layout_hash=self.settings.state.layout.hash if self.pool is not None else "",
        )

    async def _build(self, effect: BuildPool, reserved_slots: int) -> None:
        if effect.pool_bytes:
            loop = asyncio.get_running_loop()
            try:
                self.pool = await loop.run_in_executor(
                    self._scrubber, Pool, self.settings.state.layout, effect.rows, self._stopping.is_set
                )
            except PoolError as error:
                self.check_serving()
                self.core.not_built(str(error))
                raise Refused(ErrorReason.POOL_ALLOCATION_FAILED, str(error)) from None
        self.core.built(effect, reserved_slots)
        self._log.info("committed", rows=effect.rows, pool_bytes=effect.pool_bytes)
        self._on_committed()

    # ---- the leader's stream ----

    def open_stream(self, stream: BindStream, request: pb.BindRequest) -> None:
        """The ledger goes out first."""
        self.check_serving()
        self._hear(request.term, request.leader_boot_id)
        ledger, effects = self.core.open_stream(convert.opening_from(request))
        for effect in effects:
            self._perform(effect)
        self._stream = stream
        stream.put(
            pb.BindResponse(
                rank_boot_id=self.core.boot_id,
                term=self.core.term,
                ledger=convert.ledger_to(ledger, self.core.term),
            )
        )

    def apply(self, stream: BindStream, request: pb.BindRequest) -> None:
        """One ordered message; its confirmation is put into the stream."""
        if stream.ended is not None:
            raise stream.ended
        result = self.core.apply(
            request.term,
            request.leader_boot_id,
            request.rank_boot_id,
            request.sequence_number,
            convert.releases_from(request),
            convert.binds_from(request),
        )
        for refusal in result.refused:
            self._log.warning("order refused", reason=refusal.reason.value, message=refusal.message)
        stream.put(convert.applied(self.core.boot_id, self.core.term, result))
        for effect in result.effects:
            self._perform(effect)

    def close_stream(self, stream: BindStream) -> None:
        """Its call ended; the ledger stays (rule C4)."""
        if self._stream is stream:
            self._stream = None

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ReplaceLeader():
                if self._stream is not None:
                    self._stream.end(Refused(ErrorReason.STREAM_REPLACED, effect.sentence))
                    self._stream = None
            case Scrub():
                self._in_background(self._scrub(effect.slots))
            case BuildPool() | KeepTerm():
                raise AssertionError(f"{effect} is awaited by its caller")

    def _hear(self, term: int, leader_boot_id: str) -> None:
        """Keeps a new term before it is obeyed; a rank that cannot keep it does not obey (rule D1)."""
        for keep in self.core.hear_term(term, leader_boot_id):
            try:
                self._store.keep(keep.term, keep.leader_boot_id)
            except TermStoreError as error:
                self._log.error("term not kept", why=str(error))
                raise Refused(ErrorReason.NOT_READY, str(error)) from None
            for effect in self.core.kept(keep):
                self._perform(effect)

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that outlives its caller; `close` waits for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, Refused):
            self._log.error("background work failed", exc_info=fault)

    async def _scrub(self, slots: tuple[int, ...]) -> None:
        """Zeroes off the loop, then frees and says so to the leader that is connected by then."""
        assert self.pool is not None, "rows without a pool are never scrubbed"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._scrubber, self.pool.scrub, slots)
        freed = self.core.scrubbed(slots)
        if self._stream is not None:
            self._stream.put(
                pb.BindResponse(
                    rank_boot_id=self.core.boot_id,
                    term=self.core.term,
                    applied_sequence_number=self.core.applied_number,
                    freed=freed,
                )
            )
            self._stream.flush_soon()


def _stops() -> Refused:
    return Refused(ErrorReason.DRAINING, "this cache service stops: connect again")
