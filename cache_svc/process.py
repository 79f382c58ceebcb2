"""A cache service as a process: server, health, descriptor socket, signals, a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import grpc.aio
import structlog
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from cache_svc.descriptor_socket import DescriptorSocket
from cache_svc.driver import RankDriver
from cache_svc.servicer import Servicer
from cache_svc.settings import Settings
from stateroom.channel import SERVER_OPTIONS, AddressError, is_loopback
from stateroom.logs import setup_logs
from stateroom.residency.quantity import format_bytes
from stateroom.residency.sizing import raw_slots
from stateroom.telemetry import server_interceptors, setup_telemetry
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import add_CacheServiceServicer_to_server

__all__ = ["serve"]

SERVICE = pb.DESCRIPTOR.services_by_name["CacheService"].full_name
READINESS_NAMES = ("", "readiness", SERVICE)
STOP_SECONDS_MAX = 2.0


def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; the exit code."""
    setup_logs()
    # One thread zeroes rows; OpenMP's helpers would spin against the executor's own: on two busy cores a
    # 0.7 MiB row takes 0.04 ms with one thread and 15 to 45 ms with two.
    torch.set_num_threads(1)
    for warning in settings.state.warnings:
        structlog.get_logger().warning(warning)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_Process(settings).run())
    return 0


class _Process:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._health = HealthServicer()
        self._tasks: set[asyncio.Task[None]] = set()
        self._telemetry = setup_telemetry(
            "stateroom-cache", trace_file=settings.trace_file, instance=f"rank{settings.parallel.rank}"
        )
        self._driver = RankDriver(settings, self._on_committed, lambda: self._socket.attached_count)
        self._socket = DescriptorSocket(
            settings.descriptor_socket,
            self._driver.core.boot_id,
            lambda: self._driver.pool.descriptor if self._driver.pool else None,
        )

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        server = grpc.aio.server(interceptors=server_interceptors(self._telemetry), options=SERVER_OPTIONS)
        try:
            await self._start(server)
            return await self._until_stopped()
        finally:
            await self._set_readiness(False)
            await self._driver.close()
            await server.stop(STOP_SECONDS_MAX)
            self._socket.close()
            self._telemetry.shutdown()

    async def _until_stopped(self) -> int:
        """Serves; the exit code. A fault of a part ends the whole."""
        parts = [
            asyncio.create_task(part)
            for part in (self._stop.wait(), self._socket.serve(), self._driver.check_on_idle())
        ]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        await self._set_readiness(False)
        for part in parts:
            part.cancel()
        results = await asyncio.gather(*parts, return_exceptions=True)
        faults = [result for result in results if isinstance(result, Exception)]
        for fault in faults:
            structlog.get_logger().error("stopped by a fault", exc_info=fault)
        return 1 if faults else 0

    async def _start(self, server: grpc.aio.Server) -> None:
        add_CacheServiceServicer_to_server(Servicer(self._driver), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
        )
        await self._health.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        await self._set_readiness(False)  # fact M10: "" is SERVING unless it is said otherwise
        self._socket.listen()
        self._listen(server)
        await server.start()
        print(self._greeting(), flush=True)

    def _listen(self, server: grpc.aio.Server) -> None:
        taken: list[Path] = []  # gRPC removes the sockets of a server that was started, and only those
        for address in self._settings.listen:
            try:
                server.add_insecure_port(address)
            except RuntimeError:
                for path in taken:
                    path.unlink(missing_ok=True)
                raise AddressError(
                    f"nothing can listen on {address}: free it or give --listen another address"
                ) from None
            if address.startswith("unix:"):
                taken.append(Path(address.removeprefix("unix:")))
            if not is_loopback(address):
                structlog.get_logger().warning(
                    f"{address} is open to the network without TLS: whoever reaches it can lead this rank, "
                    "so keep it in a private network"
                )

    def _greeting(self) -> str:
        terms, rank = self._settings.terms, self._settings.parallel.rank
        n = raw_slots(terms)
        affords = (
            "affords all that is asked (no recurrent layers)"
            if n is None
            else f"affords {n} sequences of {format_bytes(terms.slot_bytes)} in {format_bytes(terms.quota_bytes)}"
        )
        return f"rank {rank} listens on {', '.join(self._settings.listen)}; {affords}"

    def _on_committed(self) -> None:
        task = asyncio.ensure_future(self._set_readiness(True))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _set_readiness(self, ready: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in READINESS_NAMES:
            await self._health.set(name, status)
