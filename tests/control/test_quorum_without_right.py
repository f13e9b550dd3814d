"""A principal that may not describe the quorum: nothing is known of it, and that is no quorum without a leader."""

from __future__ import annotations

import asyncio

import pytest

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.quorum_requests import fetch_controller_id
from backend.control.observer.watches.quorum_watch import QuorumWatch
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.control.test_gateway import METADATA, answer, broker, request_of, run, serving

DESCRIBE_QUORUM = (55, 0, 2)


def described(port: int, error: ErrorCode) -> m.DescribeQuorumResponse:
    """Kafka names a missing right for the whole response; else voter 1 leads."""
    if error:
        return m.DescribeQuorumResponse(error_code=error)
    topic = m.DescribeQuorumResponse.Topics
    partition = topic.Partitions(
        leader_id=1, current_voters=[topic.Partitions.CurrentVoters(replica_id=1, log_end_offset=9)]
    )
    node = m.DescribeQuorumResponse.Nodes
    return m.DescribeQuorumResponse(
        topics=[topic(topic_name="__cluster_metadata", partitions=[partition])],
        nodes=[node(node_id=1, listeners=[node.Listeners(name="CONTROLLER", host="127.0.0.1", port=port)])],
    )


@pytest.mark.parametrize(
    ("error", "silent"), [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False), (ErrorCode.UNKNOWN_SERVER_ERROR, True)]
)
def test_a_right_that_is_missing_makes_no_silent_quorum(error: ErrorCode, silent: bool) -> None:
    async def play() -> None:
        errors = [ErrorCode.NONE]
        port = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                header, request = await request_of(reader)
                if isinstance(request, m.DescribeQuorumRequest):
                    writer.write(answer(header, described(port, errors[-1])))
                else:
                    brokers = [m.MetadataResponse.Brokers(node_id=1, host="127.0.0.1", port=port)]
                    writer.write(answer(header, m.MetadataResponse(cluster_id="c", brokers=brokers)))

        async with serving(broker(METADATA, DESCRIBE_QUORUM, then=serve)) as address:
            port = address.port
            gateway = Gateway([address])
            watch = QuorumWatch(gateway, None)
            await watch.refresh(1_000)
            assert (watch.quorum.leader_id, watch.quorum.silent_since_ms) == (1, None)
            assert watch.quorum.listeners == {1: ("127.0.0.1", port)}
            errors.append(error)
            await watch.refresh(2_000)
            assert (watch.quorum.silent_since_ms == 2_000) is silent
            assert watch.facts is not None
            assert watch.facts["cause"]
            assert await fetch_controller_id(gateway) is None
            await gateway.close()

    run(play())
