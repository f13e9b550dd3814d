"""The limit of clients that listen to plans at the same time."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from backend.control.http.plan_events import STREAMS_MAX, STREAMS_OF_ONE_MAX, STREAMS_OF_VIEWERS_MAX, PlanEventStream
from backend.control.http.problems import Problem
from backend.control.operations.audit_entries import Actor, ActorRole

# A feed that is not sent yet reads no row.
ROW: Any = None


async def next_event() -> Any:
    raise AssertionError("nothing is sent")


@pytest.fixture(autouse=True)
def nobody_listens() -> None:
    # Objects to which a caught exception still refers are freed by the next collection.
    gc.collect()


def listen(name: str, role: ActorRole) -> PlanEventStream:
    return PlanEventStream(next_event, ROW, Actor(name, role))


def refused(name: str, role: ActorRole) -> bool:
    with pytest.raises(Problem) as problem:
        listen(name, role)
    return problem.value.status == 503


def test_one_token_cannot_take_all_streams() -> None:
    held = [listen("viewer", ActorRole.VIEWER) for _ in range(STREAMS_OF_ONE_MAX)]
    assert refused("viewer", ActorRole.VIEWER)
    held.append(listen("another", ActorRole.VIEWER))


def test_viewers_together_leave_some_for_operators() -> None:
    held = [listen(f"viewer {index}", ActorRole.VIEWER) for index in range(STREAMS_OF_VIEWERS_MAX)]
    assert refused("one more", ActorRole.VIEWER)
    held += [listen(f"operator {index}", ActorRole.OPERATOR) for index in range(STREAMS_MAX - STREAMS_OF_VIEWERS_MAX)]
    assert refused("one more", ActorRole.OPERATOR)


def test_a_stream_that_nobody_sends_any_more_makes_room() -> None:
    for _ in range(2):
        held = [listen("viewer", ActorRole.VIEWER) for _ in range(STREAMS_OF_ONE_MAX)]
        assert refused("viewer", ActorRole.VIEWER)
        del held
