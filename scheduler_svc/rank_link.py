"""The connection to one rank: asks, watches, commits, and keeps the ordered stream (rules D1, D5).

A link lives as long as the scheduler. Each connection starts with ResidencyQuery, then watches; when
anything breaks the core hears RankLost, and tenacity opens the next connection. A watch that is
silent for three heartbeats is broken too: a stuck serving loop still answers pings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import grpc
import grpc.aio
import structlog
from opentelemetry import trace
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from scheduler_svc.convert import ranks as convert
from scheduler_svc.core.effects import CommitAgreement, Orders
from scheduler_svc.core.events import Committed, Event, RankLost
from scheduler_svc.tracing import AgreementSpans
from stateroom.channel import open_channel
from stateroom.errors import from_rpc_error
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import CacheServiceStub
from stateroom.wire_words import answer_from

__all__ = ["LinkOwner", "RankLink"]

HEARTBEAT_MS = 500
SILENT_HEARTBEATS_MAX = 3
CONNECT_SECONDS_MAX = 2.0
CALL_SECONDS_MAX = 5.0
COMMIT_SECONDS_MAX = 120.0  # a big pool is touched page by page


class LinkOwner(Protocol):
    """What a link needs of the driver."""

    @property
    def term(self) -> int:
        """Term of this scheduler."""

    boot_id: str

    def handle(self, event: Event) -> None:
        """Feeds the core."""


class _Broken(Exception):
    """This connection is over; the text says why."""


class RankLink:
    """Rank `number` at `address`."""

    def __init__(
        self,
        owner: LinkOwner,
        number: int,
        address: str,
        asked: int,
        spans: AgreementSpans,
        interceptors: list[grpc.aio.ClientInterceptor],
    ) -> None:
        self.number = number
        self.address = address
        self.report: pb.ResidencyQueryResponse | None = None
        self.report_at: float = 0.0
        self._owner = owner
        self._asked = asked
        self._spans = spans
        self._log = structlog.get_logger().bind(rank=number, address=address)
        self._channel = open_channel(address, interceptors)
        self._stub = CacheServiceStub(self._channel)
        self._orders: asyncio.Queue[Orders] = asyncio.Queue()
        self._work: asyncio.Queue[CommitAgreement | None] = asyncio.Queue()  # None: hear the ledger

    async def run(self) -> None:
        """Until cancelled."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Broken),
            wait=wait_exponential(multiplier=0.1, max=0.5),
            before_sleep=self._lost,
            sleep=asyncio.sleep,
        )
        try:
            await retrying(self._connect_and_serve)
        finally:
            await self._channel.close()

    def _lost(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if self.report is not None or state.attempt_number == 1 or state.attempt_number % 30 == 0:
            self._log.warning("rank is not connected, trying again", why=str(error))
        self.report = None
        self._owner.handle(RankLost(self.number, f"at {self.address} is not connected ({error})"))

    def commit(self, effect: CommitAgreement) -> None:
        """Soon, in order with `hear_ledger`."""
        self._work.put_nowait(effect)

    def hear_ledger(self) -> None:
        """Opens the ordered stream again and reads the ledger."""
        self._work.put_nowait(None)

    def send(self, orders: Orders) -> None:
        """Next on the ordered stream."""
        self._orders.put_nowait(orders)

    async def _connect_and_serve(self) -> None:
        self._work = asyncio.Queue()
        try:
            await self._reach()
            await self._query()
            await _first_fault(self._watch(), self._carry_out())
        except grpc.aio.AioRpcError as error:
            raise _Broken(f"{error.code().name}: {error.details()}") from None

    async def _reach(self) -> None:
        """Waits for the transport, so that only a rank that is there is asked, and traced."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._channel.channel_ready()
        except TimeoutError:
            raise _Broken("nobody answers there") from None

    async def _query(self) -> None:
        span = self._spans.asking(self.number, self.address)
        with trace.use_span(span, end_on_exit=False):
            try:
                response = await self._stub.ResidencyQuery(
                    pb.ResidencyQueryRequest(asked=self._asked), timeout=CALL_SECONDS_MAX
                )
            except grpc.aio.AioRpcError as error:
                span.set_attribute("error.type", str(error.code()))
                span.end()
                raise
        self._spans.answered(
            span, answer_from(response.local), response.terms.slot_bytes, response.terms.quota_bytes
        )
        self._heard(response)

    def _heard(self, report: pb.ResidencyQueryResponse) -> None:
        changed = self.report is None or _facts(report) != _facts(self.report)
        self.report, self.report_at = report, asyncio.get_running_loop().time()
        if changed:
            self._owner.handle(convert.reported(self.number, report))

    async def _watch(self) -> None:
        call = self._stub.WatchResidency(
            pb.WatchResidencyRequest(asked=self._asked, heartbeat_ms=HEARTBEAT_MS)
        )
        seconds_max = SILENT_HEARTBEATS_MAX * HEARTBEAT_MS / 1000
        while True:
            try:
                async with asyncio.timeout(
                    seconds_max
                ):  # wait_for loses a cancel that meets a message (3.11)
                    message = await call.read()
            except TimeoutError:
                call.cancel()
                raise _Broken(f"was silent for {seconds_max} s") from None
            if not isinstance(message, pb.WatchResidencyResponse):
                raise _Broken("ended its watch stream")
            self._heard(message.residency)

    async def _carry_out(self) -> None:
        """Commits and ledger readings, one at a time; the ordered stream runs beside them."""
        stream: asyncio.Task[None] | None = None
        try:
            while True:
                get = asyncio.ensure_future(self._work.get())
                await asyncio.wait(
                    {get} | ({stream} if stream else set()), return_when=asyncio.FIRST_COMPLETED
                )
                if stream is not None and stream.done():
                    get.cancel()
                    stream.result()
                    raise _Broken("ended its ordered stream")
                work = await get
                if work is not None:
                    await self._commit(work)
                    continue
                if stream is not None:
                    stream.cancel()
                stream = asyncio.create_task(self._bind_stream())
        finally:
            if stream is not None:
                stream.cancel()

    async def _commit(self, effect: CommitAgreement) -> None:
        request = convert.commit_request(effect, self._owner.term, self._owner.boot_id)
        try:
            response = await self._stub.CommitResidency(request, timeout=COMMIT_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            refused = from_rpc_error(error)
            if refused.reason is None:
                raise
            raise _Broken(f"refused the agreement: {refused.message}") from None
        self._owner.handle(Committed(self.number, effect.boot_id, response.rows, effect.agreement))

    async def _bind_stream(self) -> None:
        """One ordered stream: the ledger first, then orders out and confirmations in."""
        orders: asyncio.Queue[Orders] = asyncio.Queue()
        self._orders = orders
        call = self._stub.Bind()
        await call.write(
            pb.BindRequest(term=self._owner.term, leader_boot_id=self._owner.boot_id, sequence_number=0)
        )
        first = await call.read()
        if not isinstance(first, pb.BindResponse):
            raise _Broken(f"refused the ordered stream ({(await call.code()).name}: {await call.details()})")
        writer = asyncio.create_task(self._write_orders(call, orders))
        try:
            self._owner.handle(convert.ledger(self.number, first))
            while isinstance(response := await call.read(), pb.BindResponse):
                self._owner.handle(convert.confirmed(self.number, response))
            raise _Broken(f"ended the ordered stream ({await call.details() or 'no detail'})")
        finally:
            writer.cancel()
            call.cancel()

    async def _write_orders(
        self, call: grpc.aio.StreamStreamCall[pb.BindRequest, pb.BindResponse], orders: asyncio.Queue[Orders]
    ) -> None:
        while True:
            effect = await orders.get()
            await call.write(convert.orders(effect, self._owner.term, self._owner.boot_id))


def _facts(report: pb.ResidencyQueryResponse) -> tuple[object, ...]:
    """What the core has to hear of; counts of slots change all the time and are only shown."""
    return (
        report.boot_id,
        report.local.SerializeToString(),
        report.terms.reserved_slots,
        report.highest_term,
    )


async def _first_fault(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs the parts beside each other until one fails or ends, ends the others, raises the first fault.

    No asyncio.TaskGroup: before Python 3.13 a group that failed leaves its task marked as cancelling, so a
    broken connection and a cancel of the link would look alike, and a link would never connect again.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
