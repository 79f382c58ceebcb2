"""The synchronous session, for an engine loop that is a thread: the same calls, the sync gRPC stub."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import grpc
from tenacity import Retrying

from stateroom.channel import open_sync_channel
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
from stateroom.errors import StateroomError, from_rpc_error
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

__all__ = ["SyncSession"]

CALL_SECONDS_MAX = 5.0


class _Stream:
    """One open Step stream; requests go through a queue that gRPC's own thread empties."""

    def __init__(self, stub: SchedulerServiceStub, first: pb.StepRequest) -> None:
        self._requests: queue.SimpleQueue[pb.StepRequest | None] = queue.SimpleQueue()
        self._requests.put(first)
        self._responses: Iterator[pb.StepResponse] = stub.Step(iter(self._requests.get, None))
        self._ahead: queue.SimpleQueue[pb.StepResponse | StateroomError | None] | None = None

    def write(self, request: pb.StepRequest) -> None:
        """Next in order."""
        self._requests.put(request)

    def read(self, seconds: float | None = None) -> pb.StepResponse | None:
        """The next response, None at the end; StateroomError where connecting again cannot help.

        With `seconds` it waits no longer and raises TimeoutError. From the first such call on a thread
        reads ahead, since gRPC's own iterator cannot be left waiting.
        """
        if seconds is None and self._ahead is None:
            return self._next()
        if self._ahead is None:
            self._ahead = queue.SimpleQueue()
            threading.Thread(target=self._read_ahead, name="stateroom-read", daemon=True).start()
        try:
            found = self._ahead.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(found, StateroomError):
            raise found
        return found

    def _read_ahead(self) -> None:
        assert self._ahead is not None, "the queue is made before its thread"
        found: pb.StepResponse | StateroomError | None
        while True:
            try:
                found = self._next()
            except StateroomError as refusal:
                found = refusal
            self._ahead.put(found)
            if not isinstance(found, pb.StepResponse):
                return

    def _next(self) -> pb.StepResponse | None:
        try:
            return next(self._responses, None)
        except grpc.RpcError as error:
            refusal = from_rpc_error(error)
            if refusal.reason in FINAL_REASONS:
                raise refusal from None
            return None

    def close(self) -> None:
        """Ends the requests, and with them the call."""
        self._requests.put(None)


class SyncSession(FactsMixin):
    """Made by `connect`. One thread uses it at a time."""

    def __init__(
        self, address: str, channel: grpc.Channel, info: SessionInfo, request: pb.RegisterSessionRequest
    ) -> None:
        self.address = address
        self.info = info
        self._book = SessionBook(info.session_id)
        self._registration = request
        self._channel = channel
        self._stub = SchedulerServiceStub(channel)
        self._stream: _Stream | None = None
        self._registered: SessionInfo | None = None  # by the reconnecting thread; taken by the next step
        self._reconnecting: threading.Thread | None = None
        self._closed = threading.Event()

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        executor: str,
        attaches_pools: bool = False,
        engine_budgets: bool = False,
        session_id: str = "",
        timeout_s: float | None = None,
    ) -> SyncSession:
        """As Session.connect; KeyboardInterrupt ends the wait at once."""
        channel = open_sync_channel(address)
        try:
            request = registration(executor, session_id, attaches_pools, engine_budgets)
            info = _register(channel, address, request, timeout_s, threading.Event())
        except BaseException:
            channel.close()
            raise
        session = cls(address, channel, info, request)
        session._stream = _Stream(session._stub, session._book.whole_list())
        return session

    @property
    def away(self) -> bool:
        """True while the scheduler is not connected: go on with what runs (rule D7)."""
        return self._stream is None

    def step(
        self, completed_step: int | None = None, *, full: bool = False, deadline_ms: float | None = None
    ) -> Decisions:
        """As Session.step."""
        self._take_up_reconnect()
        request = self._book.request(ask=True, completed_step=completed_step, full=full)
        step = self._book.step
        late = False
        if self._stream is not None:
            deadline = None if deadline_ms is None else time.monotonic() + deadline_ms / 1000
            self._stream.write(request)
            try:
                while (response := self._read(deadline)) is not None and response.step != step:
                    pass
            except TimeoutError:
                late = True
        decisions = self._book.take(step, away=self._stream is None)
        decisions.late = late
        return decisions

    def flush(self) -> None:
        """Says everything queued and asks nothing."""
        self._take_up_reconnect()
        request = self._book.request(ask=False, completed_step=None)
        if self._stream is not None:
            self._stream.write(request)

    def settle(self) -> None:
        """Waits until no bind is in flight."""
        while self._book.binding_count and self._read() is not None:
            pass

    def close(self) -> None:
        """Ends the stream. What the session holds stays held."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()
        self._channel.close()

    def _read(self, deadline: float | None = None) -> pb.StepResponse | None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        response = self._stream.read(left) if self._stream is not None else None
        if response is None:
            self._broken()
        else:
            hear(self._book, response)
        return response

    def _broken(self) -> None:
        self._stream = None
        self._book.binding_count = 0
        if self._reconnecting is None or not self._reconnecting.is_alive():
            self._reconnecting = threading.Thread(
                target=self._reconnect, name="stateroom-reconnect", daemon=True
            )
            self._reconnecting.start()

    def _reconnect(self) -> None:
        self._registration.session_id = self._book.session_id
        self._registered = _register(self._channel, self.address, self._registration, None, self._closed)

    def _take_up_reconnect(self) -> None:
        """In the caller's thread, so that the book has one user."""
        if self._stream is None and self._registered is not None:
            self.info, self._registered = self._registered, None
            self._stream = _Stream(self._stub, self._book.whole_list())


def _register(
    channel: grpc.Channel,
    address: str,
    request: pb.RegisterSessionRequest,
    timeout_s: float | None,
    closed: threading.Event,
) -> SessionInfo:
    stub = SchedulerServiceStub(channel)

    def once() -> SessionInfo:
        try:
            return SessionInfo.of(stub.RegisterSession(request, timeout=CALL_SECONDS_MAX))
        except grpc.RpcError as error:
            raise translated(error, address) from None

    retrying = Retrying(
        retry=is_worth_waiting,
        wait=PATIENCE,
        stop=stop_after(timeout_s),
        reraise=True,
        sleep=lambda seconds: (closed.wait(seconds), None)[1],
    )
    return retrying(once)
