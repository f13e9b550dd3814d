"""The faults of the rig's object store are what they are called, and end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from tests.incidents.rigs.store_faults import FaultyS3, StoreFaultNow
from tests.s3_server import KEY, REGION

LOG = "tier/kafka-tiered-storage/old-0-abc/00000000000000000000-xyz"
OTHER = "tier/kafka-tiered-storage/old-0-abc/00000000000000000500-uvw"


@pytest.fixture
def store() -> Iterator[FaultyS3]:
    made = FaultyS3()
    with made:
        yield made


@pytest.fixture
def client(store: FaultyS3) -> Any:
    """One that tries once and waits 2 s."""
    config = Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=2)
    place = {"endpoint_url": store.endpoint, "region_name": REGION, "config": config}
    made = boto3.client("s3", aws_access_key_id=KEY, aws_secret_access_key=KEY, **place)
    for key in (LOG, OTHER):
        for suffix in ("log", "index"):
            made.put_object(Bucket="bucket", Key=f"{key}.{suffix}", Body=key.encode())
    return made


def put(client: Any) -> None:
    client.put_object(Bucket="bucket", Key=f"{LOG}.log", Body=b"new")


def get(client: Any) -> bytes:
    body: bytes = client.get_object(Bucket="bucket", Key=f"{LOG}.log")["Body"].read()
    return body


def delete(client: Any) -> None:
    client.delete_object(Bucket="bucket", Key=f"{OTHER}.index")


CALLS = {"put": put, "get": get, "delete": delete}


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("refuse-writes", {"put"}),
        ("refuse-writes-and-deletes", {"put", "delete"}),
        ("refuse-reads", {"get"}),
        ("refuse-deletes", {"delete"}),
        ("none", set()),
    ],
)
def test_what_is_refused_is_refused_and_the_rest_is_served(
    store: FaultyS3, client: Any, fault: str, refused: set[str]
) -> None:
    store.fault(StoreFaultNow(fault))
    for name, call in CALLS.items():
        if name in refused:
            with pytest.raises(ClientError, match="AccessDenied"):
                call(client)
        else:
            call(client)
    store.fault(StoreFaultNow())
    for call in CALLS.values():
        call(client)


@pytest.mark.parametrize(
    ("fault", "topic", "refused"),
    [
        ("refuse-writes", "", False),
        ("refuse-deletes", "", True),
        ("refuse-writes-and-deletes", "old", True),
        ("refuse-deletes", "another", False),
    ],
)
def test_a_list_of_objects_is_deleted_by_post_and_is_no_write(
    store: FaultyS3, client: Any, fault: str, topic: str, refused: bool
) -> None:
    """The embedded brokers delete so, also one object."""
    store.fault(StoreFaultNow(fault, topic=topic))
    keys = [f"{OTHER}.{suffix}" for suffix in ("log", "index")]
    answer = client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys]})
    assert [(error["Key"], error["Code"]) for error in answer.get("Errors", [])] == [
        (key, "AccessDenied") for key in keys if refused
    ]
    store.fault(StoreFaultNow())
    assert client.list_objects_v2(Bucket="bucket", Prefix=OTHER)["KeyCount"] == (2 if refused else 0)


def test_a_fault_of_a_topic_is_of_no_other(store: FaultyS3, client: Any) -> None:
    store.fault(StoreFaultNow("refuse-writes", topic="another"))
    put(client)
    store.fault(StoreFaultNow("refuse-writes", topic="old"))
    with pytest.raises(ClientError):
        put(client)


def test_slow_calls_end(store: FaultyS3, client: Any) -> None:
    store.fault(StoreFaultNow("slow-reads", delay_ms=300))
    began_s = time.monotonic()
    get(client)
    assert time.monotonic() - began_s >= 0.3
    began_s = time.monotonic()
    put(client)
    assert time.monotonic() - began_s < 0.3


def test_a_write_that_hangs_goes_on_when_the_store_is_healed(store: FaultyS3, client: Any) -> None:
    store.fault(StoreFaultNow("hang-writes"))
    thread = threading.Thread(target=put, args=(client,))
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    store.fault(StoreFaultNow())
    thread.join(5)
    assert not thread.is_alive()
    assert get(client) == b"new"


def test_a_store_that_was_away_has_its_objects_at_the_same_address(store: FaultyS3, client: Any) -> None:
    store.fault(StoreFaultNow("away"))
    with pytest.raises(EndpointConnectionError):
        get(client)
    store.fault(StoreFaultNow())
    assert get(client) == LOG.encode()


def test_objects_of_the_first_segments_are_taken_away_and_put_back(store: FaultyS3, client: Any) -> None:
    assert store.take_away("/old-", 1) == 1
    with pytest.raises(ClientError, match="NoSuchKey"):
        get(client)
    client.get_object(Bucket="bucket", Key=f"{OTHER}.log")
    store.put_back()
    assert get(client) == LOG.encode()
    assert store.take_away("/", -1) == 2
    store.put_back()
    assert get(client) == LOG.encode()
    assert store.take_away("/new-", -1) == 0
