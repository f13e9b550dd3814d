"""Server-sent events of one plan: what it is, each time that it has changed (WHATWG HTML, 9.2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from weakref import WeakSet

from pydantic_core import to_json

from backend.control.http.problems import Problem
from backend.control.operations.audit_entries import Actor, ActorRole
from backend.control.operations.lifecycle.plan_states import FINISHED, PlanState
from backend.control.operations.lifecycle.plan_store import version_of
from backend.control.operations.operation_errors import OperationError
from backend.store.queries.audit import OperationRow

# One read of one row per poll and stream: 20 streams are 40 reads a second.
POLL_INTERVAL_S: Final = 0.5
STREAMS_MAX: Final = 20
# One token, or one person of the dashboard, and all viewers together: an operator always finds a stream to look after
# what he has begun.
STREAMS_OF_ONE_MAX: Final = 5
STREAMS_OF_VIEWERS_MAX: Final = 15
# A stream that is over is opened again by the browser's EventSource; so a forgotten one does not last for ever.
STREAM_S: Final = 600.0
# Something is sent this often, so that what stands between does not take a quiet stream for a dead one.
QUIET_S: Final = 15.0
# From the call on, also while nothing has been sent yet; a stream that is no longer sent is not counted.
_open: WeakSet[PlanEventStream] = WeakSet()


class PlanEventStream:
    """The changes of one plan from `first` on. Raises Problem 503 when too many are listening already."""

    def __init__(self, read_row: Callable[[], Awaitable[OperationRow]], first: OperationRow, actor: Actor) -> None:
        if (reason := _no_room(actor)) is not None:
            text = f"{reason}: ask for the plan itself every few seconds."
            raise Problem(503, "too-many-streams", text)
        self.actor = actor
        self._read_row = read_row
        self._first = first
        _open.add(self)

    async def stream(self) -> AsyncIterator[bytes]:
        """Events `plan` with the row and its version as id; comments while nothing happens."""
        try:
            row, version, sent_s = self._first, "", time.monotonic()
            until_s = sent_s + STREAM_S
            while time.monotonic() < until_s:
                if version_of(row) != version:
                    version, sent_s = version_of(row), time.monotonic()
                    yield event("plan", version, to_json({"plan": row}))
                elif time.monotonic() - sent_s > QUIET_S:
                    sent_s = time.monotonic()
                    yield b": still here\n\n"
                if PlanState(row.state) in FINISHED:
                    return
                await asyncio.sleep(POLL_INTERVAL_S)
                row = await self._read_row()
        except OperationError as error:
            yield event("problem", "", to_json({"detail": str(error)}))
        finally:
            _open.discard(self)


def _no_room(actor: Actor) -> str | None:
    if len(_open) >= STREAMS_MAX:
        return f"{STREAMS_MAX} callers are listening already"
    if sum(stream.actor == actor for stream in _open) >= STREAMS_OF_ONE_MAX:
        return f"{actor.name[:100]} is listening {STREAMS_OF_ONE_MAX} times already"
    if (
        actor.role is ActorRole.VIEWER
        and sum(stream.actor.role is ActorRole.VIEWER for stream in _open) >= STREAMS_OF_VIEWERS_MAX
    ):
        return f"{STREAMS_OF_VIEWERS_MAX} viewers are listening already"
    return None


def event(name: str, id_: str, data: bytes) -> bytes:
    """One event; JSON has no line breaks outside strings."""
    return f"event: {name}\nid: {id_}\ndata: ".encode() + data + b"\n\n"
