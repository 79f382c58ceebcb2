"""The driver of one rank: owns the pool, the scrub thread, the watchers and the leader's stream.

Everything but zeroing and building happens on one event loop. The ledger changes before anything is
awaited, so a confirmation always tells what stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from cache_svc import convert
from cache_svc.core.effects import BuildPool, Effect, KeepTerm, ReplaceLeader, Scrub
from cache_svc.core.rank import RankCore
from cache_svc.pool import Pool, PoolError
from cache_svc.settings import Settings
from cache_svc.term_store import TermStore
from stateroom.ordered_stream import OrderedStream
from stateroom.residency.answer import Bounded, Unbounded
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import raw_slots
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.wire_words import answer_from, answer_to

__all__ = ["RankDriver"]

INTEGRITY_SECONDS = 10.0
BindStream = OrderedStream[pb.BindResponse]


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
        self._changed = asyncio.Condition()
        self._building = asyncio.Lock()
        self._scrubber = ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._background: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger().bind(rank=settings.parallel.rank)

    async def check_on_idle(self) -> None:
        """Looks at the invariants now and then; a broken one is said, never fatal (scenario L22)."""
        while True:
            await asyncio.sleep(INTEGRITY_SECONDS)
            for sentence in self.core.ledger.check_integrity() if self.core.ledger else ():
                self._log.error("integrity", broken=sentence)

    async def close(self) -> None:
        """Ends the leader's stream and the scrub thread; the pool's memory lives while a worker maps it."""
        if self._stream is not None:
            self._stream.end(Refused(ErrorReason.DRAINING, "this cache service stops: connect again"))
        self._scrubber.shutdown(wait=True, cancel_futures=True)
        if self.pool is not None:
            self.pool.close()

    # ---- residency ----

    def residency(self, asked: int) -> pb.ResidencyQueryResponse:
        """The local answer beside the agreed one, with every term of the sum."""
        core, state, parallel = self.core, self.settings.state, self.settings.parallel
        return pb.ResidencyQueryResponse(
            place=pb.RankPlace(
                rank=parallel.rank,
                tp_size=parallel.tp_size,
                tp_rank=parallel.tp_rank,
                pp_size=parallel.pp_size,
                pp_rank=parallel.pp_rank,
            ),
            boot_id=core.boot_id,
            local=answer_to(core.local(asked)),
            agreed=answer_to(core.agreement),
            terms=pb.SizingTerms(
                quota_bytes=core.terms.quota_bytes,
                fixed_bytes=core.terms.fixed_bytes,
                slot_bytes=state.slot_bytes,
                conv_bytes=state.conv_bytes,
                recurrent_bytes=state.recurrent_bytes,
                padding_bytes=state.padding_bytes,
                auxiliary_bytes=state.auxiliary_bytes,
                reserved_slots=core.terms.reserved_slots,
                kv_sequence_bytes=core.terms.kv_sequence_bytes,
                kv_token_bytes=state.kv_token_bytes if state.kv_error is None else 0,
                recurrent_layers_count=state.recurrent_layers_count,
                attention_layers_count=state.attention_layers_count,
                ssm_dtype=pb.SourcedDtype(dtype=state.ssm_dtype.dtype, source=state.ssm_dtype.source),
                conv_dtype=pb.SourcedDtype(dtype=state.conv_dtype.dtype, source=state.conv_dtype.source),
                guarantee=core.terms.guarantee,
            ),
            slots=convert.counts_to(core.ledger),
            highest_term=core.term,
            asked=asked,
            spare_bytes=max(0, core.spare_bytes()),
            attached_workers_count=self._attached_count(),
        )

    async def wait_for_change(self, seconds_max: float) -> None:
        """Returns at a change of the residency, or after the heartbeat."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds_max)

    async def set_quota(self, request: pb.SetQuotaRequest) -> pb.SetQuotaResponse:
        """Another quota; every watcher hears it at once (rule B8)."""
        previous_bytes = self.core.terms.quota_bytes
        sentence = self.core.set_quota(request.quota_bytes, request.rank_boot_id)
        self._log.info("quota", bytes=request.quota_bytes, before=previous_bytes, says=sentence)
        await self._tell_watchers()
        n = raw_slots(self.core.terms)
        return pb.SetQuotaResponse(
            affords=answer_to(Unbounded() if n is None else Bounded(n)),
            previous_quota_bytes=previous_bytes,
            built_slots=self.core.built_slots(),
            sentence=sentence,
        )

    async def _tell_watchers(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def commit(self, request: pb.CommitResidencyRequest) -> pb.CommitResidencyResponse:
        """Takes the agreement and builds the pool, in a thread: touching pages takes seconds (fact M8)."""
        async with self._building:  # a repeated commit waits for the first one's answer
            effects = self.core.commit(
                request.term,
                request.leader_boot_id,
                request.rank_boot_id,
                answer_from(request.agreed),
                request.asked,
                request.reserved_slots,
            )
            for effect in effects:
                if isinstance(effect, BuildPool):
                    await self._build(effect, request.reserved_slots)
                else:
                    self._perform(effect)
        await self._tell_watchers()
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
                    self._scrubber, Pool, self.settings.state.layout, effect.rows
                )
            except PoolError as error:
                self.core.not_built(str(error))
                raise Refused(ErrorReason.POOL_ALLOCATION_FAILED, str(error)) from None
        self.core.built(effect, reserved_slots)
        self._log.info("committed", rows=effect.rows, pool_bytes=effect.pool_bytes)
        self._on_committed()

    # ---- the leader's stream ----

    def open_stream(self, stream: BindStream, request: pb.BindRequest) -> None:
        """The ledger goes out first."""
        ledger, effects = self.core.open_stream(request.term, request.leader_boot_id)
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
            case KeepTerm():
                self._store.keep(effect.term, effect.leader_boot_id)
            case ReplaceLeader():
                if self._stream is not None:
                    self._stream.end(Refused(ErrorReason.STREAM_REPLACED, effect.sentence))
                    self._stream = None
            case Scrub():
                task = asyncio.ensure_future(self._scrub(effect.slots))
                self._background.add(task)
                task.add_done_callback(self._background.discard)
            case BuildPool():
                raise AssertionError("a pool is built by commit")

    async def _scrub(self, slots: tuple[int, ...]) -> None:
        """Zeroes off the loop, then frees and says so to the leader that is connected by then."""
        assert self.pool is not None, "rows without a pool are never scrubbed"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._scrubber, self.pool.scrub, slots)
        freed = self.core.scrubbed(slots)
        if self._stream is not None:
            self._stream.put(
                pb.BindResponse(rank_boot_id=self.core.boot_id, term=self.core.term, freed=freed)
            )
            self._stream.flush_soon()
