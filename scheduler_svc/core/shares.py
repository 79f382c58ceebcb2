"""Weighted shares of tenants (rule A4), by start-time fair queueing over admitted tokens.

Each tenant has a virtual time that grows by tokens / weight with every admission; the waiter of the
tenant with the lowest goes first. A tenant that waits alone gets everything, and one that comes back
starts at the present virtual time, so nobody saves up. With one tenant the order is plain arrival.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.sequence import Sequence

__all__ = ["Shares"]

IDLE_KEPT = 64  # tenants without waiters that are remembered before a look who may be forgotten
_SCALE = 1 << 20  # virtual time is an integer: tokens x scale / weight


class Shares:
    """Virtual time and waiters by tenant; tenants without waiters cost nothing."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._time: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._now = 0  # virtual time of the last admission

    def time_of(self, tenant: str) -> int:
        """The tenant's virtual time."""
        return self._time.get(tenant, self._now)

    def waiting_count(self, tenant: str) -> int:
        """Its sequences in the queue."""
        return self._waiting.get(tenant, 0)

    def joined(self, sequence: Sequence) -> None:
        """A waiter of the tenant came."""
        tenant = sequence.arrival.tenant
        count = self._waiting.get(tenant, 0)
        self._waiting[tenant] = count + 1
        if not count:
            self._time[tenant] = max(self._time.get(tenant, 0), self._now)

    def left(self, sequence: Sequence) -> None:
        """A waiter of the tenant went."""
        tenant = sequence.arrival.tenant
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            if self._time[tenant] <= self._now:  # nothing to remember: it would start at now again
                del self._time[tenant]

    def charge(self, sequence: Sequence) -> None:
        """Admitted: its tokens count against the tenant's share. Call it before the waiter leaves."""
        tenant = sequence.arrival.tenant
        self._now = max(self._now, self.time_of(tenant))
        tokens = sequence.arrival.prompt_tokens + sequence.arrival.max_output_tokens
        self._time[tenant] = self.time_of(tenant) + tokens * _SCALE // self._weights.get(tenant, 1)

        if len(self._time) > 2 * len(self._waiting) + IDLE_KEPT:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Drops what idle tenants are ahead by, once virtual time has caught up."""
        for tenant in [t for t, time in self._time.items() if t not in self._waiting and time <= self._now]:
            del self._time[tenant]
