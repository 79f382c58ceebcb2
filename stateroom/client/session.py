"""The asyncio session: one Step stream, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import contextlib

import grpc.aio
from tenacity import AsyncRetrying

from stateroom.channel import open_channel
from stateroom.client.answers import hear
from stateroom.client.book import SessionBook
from stateroom.client.decisions import Decisions, SessionInfo
from stateroom.client.facts import FactsMixin
from stateroom.client.registration import (
    FINAL_REASONS,
    PATIENCE,
    is_worth_waiting,
    registration,
    stop_after,
    translated,
)
from stateroom.errors import from_rpc_error
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

__all__ = ["Session"]

CALL_SECONDS_MAX = 5.0
Call = grpc.aio.StreamStreamCall[pb.StepRequest, pb.StepResponse]


class Session(FactsMixin):
    """Made by `connect`. One task uses it at a time, as an engine loop does."""

    def __init__(
        self, address: str, channel: grpc.aio.Channel, info: SessionInfo, request: pb.RegisterSessionRequest
    ) -> None:
        self.address = address
        self.info = info
        self._book = SessionBook(info.session_id)
        self._registration = request
        self._channel = channel
        self._stub = SchedulerServiceStub(channel)
        self._call: Call | None = None
        self._reading: asyncio.Task[object] | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        executor: str,
        attaches_pools: bool = False,
        engine_budgets: bool = False,
        session_id: str = "",
        timeout_s: float | None = None,
    ) -> Session:
        """Registers with a group and opens the stream; waits until the group is ready.

        `timeout_s` None waits for ever, and a cancel ends the wait at once. `session_id` resumes an
        earlier session. Raises StateroomError where waiting does not help.
        """
        channel = open_channel(address)
        try:
            request = registration(executor, session_id, attaches_pools, engine_budgets)
            info = await _register(channel, address, request, timeout_s)
            session = cls(address, channel, info, request)
            await session._open_stream()
        except BaseException:
            await channel.close()
            raise
        return session

    @property
    def away(self) -> bool:
        """True while the scheduler is not connected: go on with what runs (rule D7)."""
        return self._call is None

    async def step(
        self, completed_step: int | None = None, *, full: bool = False, deadline_ms: float | None = None
    ) -> Decisions:
        """Says everything queued, asks for the next step, returns its decisions.

        `completed_step`: every step up to it is done on the devices of all ranks (rule C2). Never raises
        for an absent scheduler: `Decisions.away` says it, and the session reconnects by itself. Raises
        StateroomError where that cannot help: a newer stream took the session over (STREAM_REPLACED), or
        the scheduler refused what was said. With `deadline_ms` it waits no longer: `Decisions.late` then
        says that the answer comes with the next step's, and this step goes on without new grants (A11).
        """
        request = self._book.request(ask=True, completed_step=completed_step, full=full)
        step = self._book.step
        deadline = None if deadline_ms is None else asyncio.get_running_loop().time() + deadline_ms / 1000
        answered = await self._exchange(request, step, deadline)
        decisions = self._book.take(step, away=self._call is None)
        decisions.late = not answered and not decisions.away
        return decisions

    async def flush(self) -> None:
        """Says everything queued and asks nothing; grants are pushed back."""
        request = self._book.request(ask=False, completed_step=None)
        if self._call is not None:
            await self._write(self._call, request)

    async def settle(self) -> None:
        """Waits until no bind is in flight; grants told meanwhile stand in the next step's decisions."""
        while self._book.binding_count and await self._read():
            pass

    async def wait(self, seconds: float) -> bool:
        """Waits for a push at most so long; True if one came."""
        before = self._book.binding_count
        return await self._read(seconds) is not None or self._book.binding_count != before

    async def reconnected(self) -> None:
        """Waits until a lost scheduler is connected again; returns at once if none is lost."""
        if self._reconnecting is not None:
            await asyncio.shield(self._reconnecting)

    async def close(self) -> None:
        """Ends the stream. What the session holds stays held: finish it first to give it back."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._call is not None:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._call.done_writing()
            self._call.cancel()
        await self._channel.close()

    # ---- stream ----

    async def _exchange(self, request: pb.StepRequest, step: int, deadline: float | None) -> bool:
        if self._call is None:
            if self._reconnecting is not None and self._reconnecting.done():
                self._reconnecting.result()  # it gave up: say why
            return False
        if not await self._write(self._call, request):
            return False
        while True:
            left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
            response = await self._read(left)
            if response is None:
                return False
            if response.step == step:
                return True

    async def _write(self, call: Call, request: pb.StepRequest) -> bool:
        try:
            await call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._broken(call)
            return False
        return True

    async def _read(self, seconds: float | None = None) -> pb.StepResponse | None:
        """The next response, applied; None if the stream broke or the time passed."""
        call = self._call
        if call is None:
            return None
        try:
            if seconds is None and self._reading is None:
                response: object = await call.read()
            else:  # a read is never cancelled: that would cancel the call
                self._reading = self._reading or asyncio.ensure_future(call.read())
                done, _ = await asyncio.wait({self._reading}, timeout=seconds)
                if not done:
                    return None
                reading, self._reading = self._reading, None
                response = reading.result()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            response = grpc.aio.EOF
        if not isinstance(response, pb.StepResponse):
            await self._broken(call)
            return None
        hear(self._book, response)
        return response

    async def _open_stream(self) -> None:
        call = self._stub.Step()
        await call.write(self._book.whole_list())
        self._call = call

    async def _broken(self, call: Call) -> None:
        """The stream ended: connect again, unless the scheduler said that this cannot help."""
        self._call, self._reading = None, None
        self._book.binding_count = 0
        code, details = await call.code(), await call.details()
        ended = grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details
        )
        refusal = from_rpc_error(ended)
        if refusal.reason in FINAL_REASONS:
            raise refusal
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.ensure_future(self._reconnect())

    async def _reconnect(self) -> None:
        self._registration.session_id = self._book.session_id
        self.info = await _register(self._channel, self.address, self._registration, None)
        await self._open_stream()


async def _register(
    channel: grpc.aio.Channel,
    address: str,
    request: pb.RegisterSessionRequest,
    timeout_s: float | None,
) -> SessionInfo:
    stub = SchedulerServiceStub(channel)

    async def once() -> SessionInfo:
        try:
            return SessionInfo.of(await stub.RegisterSession(request, timeout=CALL_SECONDS_MAX))
        except grpc.aio.AioRpcError as error:
            raise translated(error, address) from None

    retrying = AsyncRetrying(
        retry=is_worth_waiting, wait=PATIENCE, stop=stop_after(timeout_s), reraise=True, sleep=asyncio.sleep
    )
    return await retrying(once)
