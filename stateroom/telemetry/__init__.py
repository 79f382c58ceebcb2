"""Traces through the OpenTelemetry SDK: set-up without globals, a JSON-lines exporter, own interceptors."""

from stateroom.telemetry.interceptors import client_interceptors, server_interceptors
from stateroom.telemetry.setup import Telemetry, setup_telemetry

__all__ = ["Telemetry", "client_interceptors", "server_interceptors", "setup_telemetry"]
