"""Waiting for every broker to know what the controller has done: a client's next question may go to any of them."""

from __future__ import annotations

from typing import Final

from backend.protocol import messages as m
from tests.waiting import wait_until
from tests.wire import ask

_QUORUM: Final = m.DescribeQuorumRequest.Topics(
    topic_name="__cluster_metadata", partitions=[m.DescribeQuorumRequest.Topics.Partitions(partition_index=0)]
)


def everybody_knows(bootstrap: str) -> None:
    """Returns when the metadata of all brokers has reached what was committed when this was called."""
    ports = [int(server.rpartition(":")[2]) for server in bootstrap.split(",")]
    quorum = ask(ports[0], m.DescribeQuorumRequest(topics=[_QUORUM]), 2, m.DescribeQuorumResponse)
    last = quorum.topics[0].partitions[0].high_watermark - 1
    wait_until("every broker knows", lambda: all(_metadata_offset(port) >= last for port in ports))


def _metadata_offset(port: int) -> int:
    """The offset of a broker's metadata, which is the epoch of its features."""
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return ask(port, request, 4, m.ApiVersionsResponse).finalized_features_epoch
