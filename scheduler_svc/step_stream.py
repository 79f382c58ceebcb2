"""One open Step stream: answers and pushes of a session, written in order by one writer at a time."""

from __future__ import annotations

import asyncio
from collections import deque

import grpc.aio

from stateroom.residency.reasons import Refused
from stateroom.v1 import scheduler_service_pb2 as pb

__all__ = ["StepStream"]

Context = grpc.aio.ServicerContext[pb.StepRequest, pb.StepResponse]


class StepStream:
    """Put what the core tells into it; `flush` sends it. Never blocks the core: sending is the loop's."""

    def __init__(self, session_id: str, context: Context) -> None:
        self.session_id = session_id
        self.ended: Refused | None = None  # why the stream has to end
        self._handler = asyncio.current_task()
        self._context = context
        self._pending: deque[pb.StepResponse] = deque()
        self._lock = asyncio.Lock()
        self._pushes: set[asyncio.Task[None]] = set()

    def end(self, why: Refused) -> None:
        """Wakes the handler, which ends the call with this status (rules D4, D8)."""
        self._pending.clear()
        self.ended = why
        if self._handler is not None:
            self._handler.cancel()

    def put(self, response: pb.StepResponse) -> None:
        """Next in order."""
        self._pending.append(response)

    async def flush(self) -> None:
        """Writes everything that is pending."""
        async with self._lock:
            while self._pending:
                await self._context.write(self._pending.popleft())

    def flush_soon(self) -> None:
        """From outside the stream's own handler: a push between steps."""
        task = asyncio.ensure_future(self._flush_quietly())
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            self._pending.clear()  # the executor is gone; its next list brings everything again (rule D5)
