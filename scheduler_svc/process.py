"""The scheduler as a process: server, health, signals, a clean stop (rules D6, D8)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from scheduler_svc.core.events import DrainAsked
from scheduler_svc.driver import GroupDriver
from scheduler_svc.flags import Settings
from scheduler_svc.servicer import Servicer
from scheduler_svc.term_file import TermFile
from stateroom.channel import SERVER_OPTIONS
from stateroom.logs import setup_logs
from stateroom.telemetry import client_interceptors, server_interceptors, setup_telemetry
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1.scheduler_service_pb2_grpc import add_SchedulerServiceServicer_to_server

__all__ = ["serve"]

SERVICE = pb.DESCRIPTOR.services_by_name["SchedulerService"].full_name
READINESS_NAMES = ("", "readiness", SERVICE)
STOP_SECONDS_MAX = 2.0


def serve(settings: Settings) -> int:
    """Runs until SIGTERM, SIGINT or the loss of the lead; the exit code."""
    setup_logs()
    with TermFile(settings.state_dir) as term_file, contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_serve(settings, term_file))
    return 0


async def _serve(settings: Settings, term_file: TermFile) -> int:
    return await _Process(settings, term_file).run()  # channels belong to the running loop


class _Process:
    def __init__(self, settings: Settings, term_file: TermFile) -> None:
        self._settings = settings
        self._term_file = term_file
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._exit_code = 0
        self._log = structlog.get_logger()
        self._telemetry = setup_telemetry(
            "stateroom-scheduler", trace_file=settings.trace_file, instance=settings.name
        )
        self._health = HealthServicer()
        self._driver = GroupDriver(
            settings=settings.group,
            term=term_file.term,
            rank_addresses=settings.rank_addresses,
            tracer=self._telemetry.tracer,
            interceptors=client_interceptors(self._telemetry),
            on_ready=self._on_ready,
            on_term=term_file.keep,
            on_deposed=self._fail,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        server = await self._start_server()
        if server is None:
            return 1
        driving = asyncio.create_task(self._driver.run())
        watching = asyncio.create_task(self._give_up_on_silent_ranks())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({driving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await self._shut_down(server, [driving, watching, stopping])
        return self._exit_code

    async def _start_server(self) -> grpc.aio.Server | None:
        server = grpc.aio.server(interceptors=server_interceptors(self._telemetry), options=SERVER_OPTIONS)
        add_SchedulerServiceServicer_to_server(Servicer(self._driver), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
        )
        await self._health.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        for name in READINESS_NAMES:  # fact M10: "" is SERVING unless it is said otherwise
            await self._health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        for address in self._settings.listen:
            try:
                if not server.add_insecure_port(address):
                    raise RuntimeError("no port was bound")
            except RuntimeError:
                print(
                    f"Error: nothing can listen on {address}: free it or give --listen another address",
                    file=sys.stderr,
                )
                return None
        await server.start()
        print(
            f"scheduler of group {self._settings.name} (term {self._driver.term}) listens on "
            f"{', '.join(self._settings.listen)}; asks {self._settings.group.ranks_count} ranks for "
            f"{self._settings.group.asked} sequences",
            flush=True,
        )
        return server

    def _on_ready(self, ready: bool) -> None:
        if ready:
            self._ready.set()
        task = asyncio.ensure_future(self._set_readiness(ready))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _set_readiness(self, ready: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in READINESS_NAMES:
            await self._health.set(name, status)

    def _fail(self, sentence: str) -> None:
        print(f"Error: {sentence}", file=sys.stderr, flush=True)
        self._exit_code = 1
        self._stop.set()

    async def _give_up_on_silent_ranks(self) -> None:
        """A rank that never answered is a wrong address sooner or later: one sentence, exit code 1."""
        seconds = self._settings.connect_seconds_max
        if not seconds:
            return
        try:
            await asyncio.wait_for(self._ready.wait(), seconds)
        except TimeoutError:
            silent = [
                f"rank {n} at {a}" for n, (a, report, _) in self._driver.reports().items() if report is None
            ]
            if silent:
                self._fail(
                    f"{', '.join(silent)} did not answer within {seconds:g} s: start its cache service or correct --ranks"
                )

    async def _shut_down(self, server: grpc.aio.Server, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """NOT_SERVING first, then no new admissions, then the streams end, then the links."""
        await self._set_readiness(False)
        self._driver.handle(DrainAsked())
        self._driver.end_streams()
        await server.stop(STOP_SECONDS_MAX)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        self._driver.close()
        self._telemetry.shutdown()
        for result in results:
            if isinstance(result, Exception):
                self._log.error("stopped by a fault", exc_info=result)
                self._exit_code = 1
        print("scheduler stopped", flush=True)
