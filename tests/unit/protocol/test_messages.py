"""The message classes: names, defaults, equality, and the stub that describes them."""

from pathlib import Path

import pytest

from backend.protocol import messages as m
from backend.protocol.messages import stubs


def test_the_stub_is_the_one_the_tables_give() -> None:
    stub = Path(str(stubs.__file__)).with_name("__init__.pyi")
    assert stub.read_text() == stubs.stub_text(), "run: python -m backend.protocol.messages.stubs, and store its output"


def test_defaults_are_those_of_the_table() -> None:
    request = m.FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.replica_id == -1
    assert request.cluster_id is None
    assert request.topics == []
    assert m.FetchRequest.Topics().topic_id == bytes(16)
    assert m.FetchRequest.Topics.Partitions().high_watermark == (1 << 63) - 1
    assert m.MetadataRequest().allow_auto_topic_creation is True
    assert m.AlterPartitionReassignmentsRequest.Topics.Partitions().replicas is None
    assert m.FetchRequest().topics is not request.topics


def test_a_nullable_list_can_be_set_to_null() -> None:
    assert m.MetadataRequest(topics=None).topics is None
    assert m.MetadataRequest().topics == []


def test_messages_are_equal_by_their_fields_and_print_them() -> None:
    request = m.HeartbeatRequest(group_id="g", generation_id=2)
    assert request == m.HeartbeatRequest(group_id="g", generation_id=2)
    assert request != m.HeartbeatRequest(group_id="g", generation_id=3)
    assert request != m.LeaveGroupRequest(group_id="g")
    assert repr(request).startswith("HeartbeatRequest(group_id='g', generation_id=2")
    assert repr(m.FetchRequest.Topics()).startswith("FetchRequest.Topics(")
    with pytest.raises(TypeError):
        hash(request)


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(TypeError):
        m.HeartbeatRequest(group="g")  # type: ignore[call-arg]  # the mistake under test
    with pytest.raises(AttributeError):
        m.HeartbeatRequest().groupid = "g"  # type: ignore[attr-defined]  # the mistake under test


def test_classes_know_their_key_and_versions() -> None:
    assert (m.FetchRequest.API_KEY, m.FetchRequest.MIN_VERSION, m.FetchRequest.MAX_VERSION) == (1, 4, 18)
    assert m.FetchRequest.FIRST_FLEXIBLE == 12
    assert m.SaslHandshakeRequest.FIRST_FLEXIBLE > m.SaslHandshakeRequest.MAX_VERSION
    assert m.PartitionRecord.KEY == 3
    assert m.request_class(1) is m.FetchRequest
    assert m.response_class(1) is m.FetchResponse
    assert m.record_class("metadata-records", 2) is m.TopicRecord
    with pytest.raises(KeyError):
        m.request_class(4)
    with pytest.raises(KeyError):
        m.message_class("Struct")
    with pytest.raises(AttributeError):
        _ = m.NoSuchRequest  # type: ignore[attr-defined]  # the mistake under test
