"""Traces through the OpenTelemetry SDK: set-up, a JSON-lines exporter, and interceptors of our own.

    telemetry = setup_telemetry("stateroom-scheduler", trace_file=path)
    server = grpc.aio.server(interceptors=server_interceptors(telemetry))
    channel = open_channel(address, client_interceptors(telemetry))
    telemetry.shutdown()

Nothing global is set, so two services live in one process. The contrib interceptors are not used: with
them a client's cancel does not reach the server (fact M1).
"""

from stateroom.telemetry.client_side import client_interceptors
from stateroom.telemetry.jsonl_exporter import TraceFileError
from stateroom.telemetry.server_side import server_interceptors
from stateroom.telemetry.setup import Telemetry, setup_telemetry

__all__ = ["Telemetry", "TraceFileError", "client_interceptors", "server_interceptors", "setup_telemetry"]
