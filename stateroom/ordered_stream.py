"""The server's end of one bidirectional stream: answers and pushes, written in order, one at a time.

Both services have one such stream a peer (Step of a session, Bind of a leader). A core's effects are
put into it without waiting; the handler or a push task sends them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

import grpc.aio

from stateroom.residency.reasons import Refused

__all__ = ["OrderedStream"]

Response = TypeVar("Response")


class OrderedStream(Generic[Response]):
    """Made inside the handler's task, which `end` wakes to end the call with a status."""

    def __init__(self, owner: str, context: grpc.aio.ServicerContext[Any, Response]) -> None:
        self.owner = owner
        self.ended: Refused | None = None  # why the stream has to end
        self._handler = asyncio.current_task()
        self._context = context
        self._pending: deque[Response] = deque()
        self._lock = asyncio.Lock()
        self._pushes: set[asyncio.Task[None]] = set()

    def end(self, why: Refused) -> None:
        """Wakes the handler, which ends the call with this status (rules D4, D8)."""
        self._pending.clear()
        self.ended = why
        if self._handler is not None:
            self._handler.cancel()

    def put(self, response: Response) -> None:
        """Next in order."""
        self._pending.append(response)

    async def flush(self) -> None:
        """Writes everything that is pending."""
        async with self._lock:
            while self._pending:
                await self._context.write(self._pending.popleft())

    def flush_soon(self) -> None:
        """From outside the stream's own handler: a push."""
        task = asyncio.ensure_future(self._flush_quietly())
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            self._pending.clear()  # the peer is gone; the next stream starts from a whole list (rule D5)
