"""Incremental fetch sessions (KIP-227): both ends, alone and against each other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.apis.fetch.fetch_session_cache import EVICTION_MS, FetchContext, FetchSessionCache
from backend.engine.ports.random import SystemRandom
from backend.engine.replica.fetch_data import CONSUMER, FetchData
from backend.engine.replica.fetchers.fetch_session_handler import FetchRequestData, FetchSessionHandler, FetchTarget
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

FetchKey = tuple[bytes, int]
VERSION = 17
TOPIC = bytes(15) + b"\x07"


def request(
    session_id: int = 0,
    epoch: int = -1,
    parts: dict[int, int] | None = None,
    forgotten: tuple[int, ...] = (),
    topic: bytes = TOPIC,
) -> m.FetchRequest:
    """Partition → fetch offset."""
    fetch = m.FetchRequest
    partitions = [
        fetch.Topics.Partitions(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in (parts or {}).items()
    ]
    return fetch(
        session_id=session_id,
        session_epoch=epoch,
        topics=[fetch.Topics(topic_id=topic, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[fetch.ForgottenTopicsData(topic_id=topic, partitions=list(forgotten))]
        if forgotten
        else [],
    )


class Server:
    """The serving side with answers given by the test."""

    def __init__(self, slots: int = 2) -> None:
        self.sessions = FetchSessionCache()
        self.slots = slots
        self.now_ms = 0.0
        self.random = SystemRandom(7)

    def ask(
        self,
        fetch_request: m.FetchRequest,
        partition_data: dict[int, FetchData] | None = None,
        *,
        follower: bool = False,
    ) -> tuple[int, dict[int, FetchData]]:
        context = self.context(fetch_request)
        data = [(partition_data or {}).get(entry.index, FetchData(high_watermark=5)) for entry in context.entries]
        session_id, pairs = self.sessions.response(
            context,
            data,
            slots=self.slots,
            replica_id=2 if follower else CONSUMER,
            uses_topic_ids=True,
            random=self.random,
            now_ms=self.now_ms,
        )
        return session_id, {entry.index: row for entry, row in pairs}

    def context(self, fetch_request: m.FetchRequest, version: int = VERSION) -> FetchContext:
        return self.sessions.context(fetch_request, version, now_ms=self.now_ms)


def offsets(context: FetchContext) -> dict[int, int]:
    return {entry.index: entry.spec.fetch_offset for entry in context.entries}


def test_a_request_without_a_session_gets_everything_and_no_id() -> None:
    server = Server()
    session_id, rows = server.ask(request(parts={0: 1, 1: 2}))
    assert (session_id, set(rows), len(server.sessions)) == (0, {0, 1}, 0)


def test_a_session_remembers_partitions_and_answers_only_news() -> None:
    server = Server()
    session_id, rows = server.ask(request(0, 0, {0: 1, 1: 2}))
    assert session_id > 0
    assert set(rows) == {0, 1}
    assert server.ask(request(session_id, 1))[1] == {}
    _, rows = server.ask(request(session_id, 2), {1: FetchData(high_watermark=6)})
    assert set(rows) == {1}
    _, rows = server.ask(request(session_id, 3, {2: 9}, forgotten=(0,)))
    assert set(rows) == {1, 2}, "1 has its old high watermark again and 2 is new"
    assert offsets(server.context(request(session_id, 4))) == {1: 2, 2: 9}


def test_a_follower_that_asks_anew_is_told_again_what_an_answer_on_its_way_tells() -> None:
    server = Server()
    session_id, _ = server.ask(request(0, 0, {0: 1, 1: 1}), follower=True)
    assert server.ask(request(session_id, 1), follower=True)[1] == {}
    assert set(server.ask(request(session_id, 2, {1: 2}), follower=True)[1]) == {1}
    assert server.ask(request(session_id, 3), follower=True)[1] == {}


def test_an_error_is_told_again_and_again_and_so_is_its_end() -> None:
    server = Server()
    session_id, _ = server.ask(request(0, 0, {0: 1}))
    wrong = {0: FetchData(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    assert set(server.ask(request(session_id, 1), wrong)[1]) == {0}
    assert set(server.ask(request(session_id, 2), wrong)[1]) == {0}
    assert set(server.ask(request(session_id, 3))[1]) == {0}
    assert set(server.ask(request(session_id, 4))[1]) == set()


def test_partitions_with_records_go_to_the_end_of_the_line() -> None:
    server = Server()
    session_id, _ = server.ask(request(0, 0, {0: 1, 1: 1, 2: 1}))
    server.ask(request(session_id, 1), {0: FetchData(records=b"x", high_watermark=5)})
    assert list(offsets(server.context(request(session_id, 2)))) == [1, 2, 0]


@pytest.mark.parametrize(
    ("fetch_request", "version", "code"),
    [
        (request(999, 1), VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(0, 5), VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(-1, 7), VERSION, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (request(-1, 1), 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
    ids=["unknown id", "epoch without id", "wrong epoch", "ids forgotten"],
)
def test_a_session_that_is_not_what_the_client_thinks_is_refused(
    fetch_request: m.FetchRequest, version: int, code: ErrorCode
) -> None:
    server = Server()
    session_id, _ = server.ask(request(0, 0, {0: 1}))
    if fetch_request.session_id == -1:
        fetch_request.session_id = session_id
    with pytest.raises(KafkaError) as caught:
        server.context(fetch_request, version)
    assert caught.value.code is code


def test_a_full_request_ends_the_session_it_names() -> None:
    server = Server()
    first, _ = server.ask(request(0, 0, {0: 1}))
    second, _ = server.ask(request(first, 0, {0: 1}))
    assert second not in (0, first)
    assert len(server.sessions) == 1
    assert server.ask(request(second, -1, {0: 1}))[0] == 0
    assert len(server.sessions) == 0


def test_slots_go_to_followers_first_and_then_to_whoever_came() -> None:
    server = Server(slots=2)
    consumers = [server.ask(request(0, 0, {0: 1}))[0] for _ in range(3)]
    assert consumers[2] == 0, "no slot left"
    follower, _ = server.ask(request(0, 0, {0: 1}), follower=True)
    assert follower > 0
    with pytest.raises(KafkaError):
        server.context(request(consumers[0], 1))
    server.context(request(consumers[1], 1))
    server.now_ms = EVICTION_MS + 1
    assert server.ask(request(0, 0, {0: 1}))[0] > 0, "an idle session gives way"


def test_a_session_without_partitions_is_gone() -> None:
    server = Server()
    session_id, _ = server.ask(request(0, 0, {0: 1}))
    assert server.context(request(session_id, 1, forgotten=(0,))).entries == []
    assert len(server.sessions) == 0


def asked_at(offset: int) -> FetchTarget:
    return FetchTarget(offset, 0, 1, 1, offset, 100)


def test_a_follower_session_sends_only_what_changed() -> None:
    session: FetchSessionHandler[str] = FetchSessionHandler()
    turn = session.next_request({"a": asked_at(1), "b": asked_at(2)}, [])
    assert (turn.session_id, turn.epoch, set(turn.changed)) == (0, 0, {"a", "b"})
    assert session.answered(turn, ErrorCode.NONE, 77)
    turn = session.next_request({"a": asked_at(1), "b": asked_at(3)}, [])
    assert (turn.session_id, turn.epoch, set(turn.changed), turn.forgotten) == (77, 1, {"b"}, [])
    turn = session.next_request({}, ["a", "unknown"])
    assert (turn.epoch, turn.changed, turn.forgotten) == (2, {}, ["a"])
    assert session.would_be_empty(["b"])


def test_a_row_counts_only_until_its_partition_is_asked_for_again() -> None:
    session: FetchSessionHandler[str] = FetchSessionHandler()
    first = session.next_request({"a": asked_at(1), "b": asked_at(1)}, [])
    session.answered(first, ErrorCode.NONE, 77)
    second = session.next_request({"b": asked_at(2)}, [])
    third = session.next_request({"a": asked_at(5)}, [])
    assert session.target("a", second) is None, "asked again by the third"
    assert session.target("b", second) == asked_at(2)
    assert session.target("b", third) == asked_at(2)
    assert session.target("a", third) == asked_at(5)


def test_a_refused_session_is_begun_anew_with_everything() -> None:
    session: FetchSessionHandler[str] = FetchSessionHandler()
    session.answered(session.next_request({"a": asked_at(1)}, []), ErrorCode.NONE, 77)
    assert not session.answered(session.next_request({}, []), ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert not session.established
    turn = session.next_request({"a": asked_at(1)}, [])
    assert (turn.session_id, turn.epoch) == (77, 0), "names the old session so that the leader drops it"
    assert not session.answered(turn, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.next_request({"a": asked_at(1)}, []).session_id == 0


def test_without_a_slot_every_request_is_a_full_one() -> None:
    session: FetchSessionHandler[str] = FetchSessionHandler()
    for _ in range(2):
        turn = session.next_request({"a": asked_at(1)}, [])
        assert (turn.session_id, turn.epoch, set(turn.changed)) == (0, 0, {"a"})
        assert session.answered(turn, ErrorCode.NONE, 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_both_ends_agree_about_what_is_asked(seed: int) -> None:
    """After any changes on the client's side the leader reads exactly what the client wants."""
    dice = random.Random(seed)
    server = Server(slots=3)
    client: FetchSessionHandler[int] = FetchSessionHandler()
    expected: dict[int, int] = {}
    for _ in range(30):
        for index in range(6):
            roll = dice.random()
            if roll < 0.3:
                expected[index] = dice.randrange(100)
            elif roll < 0.45:
                expected.pop(index, None)
        if not expected:
            continue
        everything = {index: asked_at(offset) for index, offset in expected.items()}
        turn: FetchRequestData[int] = client.next_request(
            everything, [index for index in range(6) if index not in expected]
        )
        fetch_request = request(
            turn.session_id,
            turn.epoch,
            {index: fetch_target.fetch_offset for index, fetch_target in turn.changed.items()},
            tuple(turn.forgotten),
        )
        if dice.random() < 0.1:
            client.reset()  # the answer got lost
            continue
        try:
            context = server.context(fetch_request)
        except KafkaError as error:
            client.answered(turn, error.code, 0)
            continue
        assert offsets(context) == expected
        session_id, _ = server.sessions.response(
            context,
            [FetchData(high_watermark=dice.randrange(3)) for _ in context.entries],
            slots=3,
            replica_id=2,
            uses_topic_ids=True,
            random=server.random,
            now_ms=0,
        )
        assert client.answered(turn, ErrorCode.NONE, session_id)
