"""python -m stateroom.probe ADDRESS [NAME]: exit code 0 if that health name is SERVING.

For container healthchecks, whose arguments must hold no spaces. Names: liveness, readiness, or a
service's full name; default readiness.
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stateroom.channel import AddressError, open_sync_channel

__all__ = ["is_serving", "main"]

CALL_SECONDS_MAX = 2.0


def is_serving(address: str, name: str = "readiness") -> bool:
    """False also for a service that cannot be reached or does not know the name."""
    with open_sync_channel(address) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(  # type: ignore[attr-defined]
                health_pb2.HealthCheckRequest(service=name), timeout=CALL_SECONDS_MAX
            )
        except grpc.RpcError:
            return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def main(arguments: list[str]) -> int:
    """The exit code."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m stateroom.probe ADDRESS [NAME]", file=sys.stderr)
        return 2
    try:
        return 0 if is_serving(*arguments) else 1
    except AddressError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
