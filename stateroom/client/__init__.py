"""The executor's SDK: register, say what happened, ask for the next step's decisions.

    session = await Session.connect("unix:/run/stateroom/scheduler.sock", executor="my-engine")
    session.submit("req-1", prompt_tokens=700, max_output_tokens=200)
    while running:
        decisions = await session.step(completed_step=done)
        for grant in decisions.grants: start(grant.sequence_id, grant.handles[0].slot)
        for chunk in decisions.chunks: prefill(chunk.sequence_id, chunk.start, chunk.tokens)
        decode_all_residents()
        for name in ended: session.finish(name)

`SyncSession` is the same for an engine loop that is a thread. When the scheduler is away, `step`
answers at once "go on as you are" and the session brings its whole list when it is back (rule D7).
"""

from stateroom.client.decisions import (
    Chunk,
    Decisions,
    Grant,
    Handle,
    Preemption,
    RankInfo,
    Recompute,
    Rejection,
    SessionInfo,
)
from stateroom.client.session import Session
from stateroom.client.sync import SyncSession

__all__ = [
    "Chunk",
    "Decisions",
    "Grant",
    "Handle",
    "Preemption",
    "RankInfo",
    "Recompute",
    "Rejection",
    "Session",
    "SessionInfo",
    "SyncSession",
]
