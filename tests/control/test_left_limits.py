"""Limits are removed wherever that can be done: a small broker refuses one topic, and is seen to be asked about all."""

from __future__ import annotations

import asyncio

import pytest

from backend.control.gateway import kafka_client
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.config_requests import TOPIC
from backend.control.operations.reassign import replication_throttles
from backend.control.operations.reassign.replication_throttles import LEADER_REPLICAS, REPLICA_LISTS, Throttles
from backend.protocol import messages as m
from backend.protocol.config_enums import ConfigSource
from backend.protocol.errors import ErrorCode, KafkaError
from tests.control.test_gateway import answer, broker, request_of, run, serving

DESCRIBE_CONFIGS, ALTER_CONFIGS = (32, 1, 4), (44, 0, 1)
TOPICS = ("first", "second", "third")
NOTHING = Throttles({topic: dict.fromkeys(REPLICA_LISTS) for topic in TOPICS}, {})


class Broker:
    """Tells of limits on the topics in `limited`, and refuses to change the topic `first`."""

    def __init__(self, refusal: ErrorCode, limited: tuple[str, ...]) -> None:
        self.refusal, self.limited = refusal, limited
        self.requested_topics: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, request = await request_of(reader)
            if isinstance(request, m.IncrementalAlterConfigsRequest):
                writer.write(answer(header, self._alter(request)))
            else:
                writer.write(answer(header, self._describe()))

    def _describe(self) -> m.DescribeConfigsResponse:
        result_type = m.DescribeConfigsResponse.Results
        source = int(ConfigSource.DYNAMIC_TOPIC_CONFIG)
        limit = result_type.Configs(name=LEADER_REPLICAS, value="*", config_source=source)
        return m.DescribeConfigsResponse(
            results=[
                result_type(resource_type=TOPIC, resource_name=topic, configs=[limit] if topic in self.limited else [])
                for topic in TOPICS
            ]
        )

    def _alter(self, request: m.IncrementalAlterConfigsRequest) -> m.IncrementalAlterConfigsResponse:
        response_type = m.IncrementalAlterConfigsResponse
        (topic,) = (resource.resource_name for resource in request.resources)
        self.requested_topics.append(topic)
        code = self.refusal if topic == "first" else ErrorCode.NONE
        return response_type(
            responses=[response_type.Responses(error_code=int(code), resource_type=TOPIC, resource_name=topic)]
        )


def brings(peer: Broker, *, force_removal: bool) -> ErrorCode | None:
    """Returns the error that is raised when every limit is to be removed; None without one."""
    raised: list[ErrorCode] = []

    async def test() -> None:
        async with serving(broker(DESCRIBE_CONFIGS, ALTER_CONFIGS, then=peer.serve)) as address:
            gateway = Gateway([address])
            try:
                await replication_throttles.apply_throttles(gateway, NOTHING, force_removal=force_removal)
            except KafkaError as error:
                raised.append(error.code)
            await gateway.close()

    run(test())
    return raised[0] if raised else None


def test_a_refusal_about_one_topic_keeps_no_limit_on_another() -> None:
    peer = Broker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, limited=TOPICS)
    assert brings(peer, force_removal=True) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert peer.requested_topics == list(TOPICS)


def test_before_a_move_nothing_more_is_asked_after_a_refusal() -> None:
    peer = Broker(ErrorCode.TOPIC_AUTHORIZATION_FAILED, limited=TOPICS)
    assert brings(peer, force_removal=False) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert peer.requested_topics == ["first"]


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_what_is_not_seen_to_be_set_is_removed_all_the_same_unless_it_may_never_have_been(
    refusal: ErrorCode, raised: ErrorCode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker tells of what was just set a moment later: an answer that may change is no reason to leave it."""
    monkeypatch.setattr(kafka_client, "RETRY_FIRST_S", 100.0)
    peer = Broker(refusal, limited=())
    assert brings(peer, force_removal=True) is raised
    assert sorted(peer.requested_topics) == sorted(TOPICS)
