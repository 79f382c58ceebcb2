"""The floor: a bare echo of bytes on one open stream over a unix socket, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from stateroom.channel import SERVER_OPTIONS, open_channel

__all__ = ["METHOD", "echo_stream"]

METHOD = "/stateroom.bench.Echo/Echo"


async def _echo(request_iterator: object, context: Any) -> None:
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(message)


class _Handler(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(_echo) if details.method == METHOD else None


async def _serve(address: str) -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((_Handler(),))
    server.add_insecure_port(address)
    await server.start()
    print("echo listens", flush=True)
    await server.wait_for_termination()


@asynccontextmanager
async def echo_stream(folder: Path) -> AsyncIterator[Any]:
    """An open stream to a fresh echo process: `write(bytes)`, `read()`."""
    address = f"unix:{folder}/echo.sock"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.echo", address), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        async with open_channel(address) as channel:
            yield channel.stream_stream(METHOD)()
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
