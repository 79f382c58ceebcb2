"""Channels and servers as this project opens them: addresses, keepalive, reconnects, limits.

The keys below were measured, not copied: `ping_timeout_ms` is what notices a frozen peer (fact M6),
the server's `min_ping_interval_without_data_ms` is the one that has effect (M5), and the backoff cap
turns a 7 s reconnect into 0.15 s (M4).
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import grpc
import grpc.aio

__all__ = [
    "CHANNEL_OPTIONS",
    "SERVER_OPTIONS",
    "AddressError",
    "check_address",
    "check_listen_address",
    "is_loopback",
    "open_channel",
    "open_sync_channel",
    "private_dir",
]

MESSAGE_BYTES_MAX = 4 * 2**20  # gRPC's own default, said aloud: nothing of ours comes near it (G12)

# Only idempotent unary calls, only UNAVAILABLE (rule D5). Streams are re-opened by tenacity instead.
_RETRIED = [
    {"service": "stateroom.v1.CacheService", "method": m}
    for m in ("ResidencyQuery", "CommitResidency", "AttachPool", "ListSlots")
] + [
    {"service": "stateroom.v1.SchedulerService", "method": m}
    for m in ("Cancel", "Explain", "DescribeResidency")
]
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": _RETRIED,
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.05s",
                "maxBackoff": "0.5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # a container that starts again has another address: the default asks the name only every 30 s
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # a channel of its own each, so that closing one never ends another's calls
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
)

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):(\d{1,5})")
UNIX_PATH_BYTES_MAX = 107  # sun_path of Linux, less its end


class AddressError(ValueError):
    """An address nobody can listen on or reach; the message names value and remedy."""


def check_address(address: str) -> str:
    """`unix:/path` or `host:port`, else AddressError."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise AddressError(
                f"address {address!r} has no absolute path: write it as unix:/run/stateroom/rank0.sock"
            )
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise AddressError(
                f"socket path {path!r} has {len(os.fsencode(path))} bytes and {UNIX_PATH_BYTES_MAX} are possible: use a shorter folder"
            )
        return address
    match = _HOST_PORT.fullmatch(address)
    if match is None or not 0 < int(match.group(1)) < 65536:
        raise AddressError(
            f"address {address!r} is neither unix:/path nor host:port with a port from 1 to 65535"
        )
    return address


def is_loopback(address: str) -> bool:
    """Whether only this host reaches the address: a unix socket, 127.x.x.x, [::1] or localhost."""
    host = address.rpartition(":")[0]
    return address.startswith("unix:") or host in ("localhost", "[::1]") or host.startswith("127.")


def check_listen_address(address: str, flag: str = "--listen") -> str:
    """As check_address, and the socket path must be free: a used one is refused, a dead one removed.

    `flag` is what the message tells the user to change.
    """
    check_address(address)
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if not path.parent.is_dir():
            raise AddressError(
                f"socket folder {str(path.parent)!r} does not exist: make it first (mode 0700)"
            )
        if path.exists():
            _remove_dead_socket(path, flag)
    return address


def _remove_dead_socket(path: Path, flag: str) -> None:
    import socket

    if not stat.S_ISSOCK(path.stat().st_mode):
        raise AddressError(f"{str(path)!r} exists and is no socket: give {flag} another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass
    raise AddressError(
        f"socket {str(path)!r} is in use by a running process: stop it or give {flag} another path"
    )


def private_dir(path: Path) -> Path:
    """Makes the folder with mode 0700 where it is missing; sockets lie in folders of their owner only."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def open_channel(
    address: str, interceptors: list[grpc.aio.ClientInterceptor] | None = None
) -> grpc.aio.Channel:
    """An aio channel with the options above. Connects lazily; never raises for an absent peer."""
    return grpc.aio.insecure_channel(
        check_address(address), options=CHANNEL_OPTIONS, interceptors=interceptors
    )


def open_sync_channel(address: str) -> grpc.Channel:
    """The same for synchronous callers."""
    return grpc.insecure_channel(check_address(address), options=CHANNEL_OPTIONS)
