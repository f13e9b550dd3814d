"""The remote tier on S3 in trouble: writing goes on, nothing is lost, and copies and reads go on by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.control.site import TIERED, ControlSite
from tests.s3_server import KEY, REGION, S3Server

RECORDS = 1_000


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture(scope="module")
def site(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    settings = {
        "rsm.config.url": "s3://bucket/tier",
        "rsm.config.store.aws_endpoint": store.endpoint,
        "rsm.config.store.aws_access_key_id": KEY,
        "rsm.config.store.aws_secret_access_key": KEY,
        "rsm.config.store.aws_region": REGION,
        "rsm.config.client.allow_http": "true",
    }
    with ControlSite(tmp_path_factory.mktemp("site"), settings=settings) as made:
        yield made


def refuses(method: str, status: int) -> Callable[[S3Server], Callable[[], None]]:
    def bring(store: S3Server) -> Callable[[], None]:
        store.refuses = {method: status}
        return store.refuses.clear

    return bring


def emptied(store: S3Server) -> Callable[[], None]:
    """By somebody who puts the objects back later."""
    client = store.client
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    kept = {key: client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}
    for key in keys:
        client.delete_object(Bucket="bucket", Key=key)

    def restore() -> None:
        for key, content in kept.items():
            client.put_object(Bucket="bucket", Key=key, Body=content)

    return restore


def deleted(store: S3Server) -> Callable[[], None]:
    restore = emptied(store)
    store.client.delete_bucket(Bucket="bucket")

    def heal() -> None:
        store.client.create_bucket(Bucket="bucket")
        restore()

    return heal


TROUBLES: dict[str, tuple[Callable[[S3Server], Callable[[], None]], bool]] = {
    # The fault, and whether copies fail.
    "busy": (refuses("*", 503), True),
    "forbidden": (refuses("*", 403), True),
    "reads-refused": (refuses("GET", 503), False),
    "emptied": (emptied, False),
    "deleted": (deleted, True),
}


@contextmanager
def trouble(name: str, store: S3Server) -> Iterator[bool]:
    bring, fails = TROUBLES[name]
    heal = bring(store)
    try:
        yield fails
    finally:
        heal()


@pytest.mark.parametrize("name", TROUBLES)
def test_a_store_in_trouble_loses_nothing_and_copies_go_on_by_themselves(
    name: str, store: S3Server, site: ControlSite
) -> None:
    site.create_topic(name, partitions=1, config=TIERED)
    site.produce(name, RECORDS)
    site.wait_until_quiet(name)
    before = copied(site, name)
    assert before > 0
    assert offsets(site, name, until=RECORDS) == list(range(RECORDS))
    with trouble(name, store) as fails:
        site.produce(name, RECORDS)  # acknowledged by all replicas
        if fails:
            sentence = site.wait_until("the finding is open", lambda: finding(site, name), 90)
            assert name in sentence
            assert copied(site, name) == before
        assert offsets(site, name, until=100, first=2 * RECORDS - 100, within_s=30) == list(
            range(2 * RECORDS - 100, 2 * RECORDS)
        )
    site.wait_until("copies go on", lambda: copied(site, name) > before, 60)
    assert offsets(site, name, until=2 * RECORDS) == list(range(2 * RECORDS))
    site.wait_until("nothing is said any more", lambda: not finding(site, name), 60)


def copied(site: ControlSite, topic: str) -> int:
    """Up to which offset the tier has it."""
    (row,) = site.partitions(topic)
    return int(row["latest_tiered_offset"] or 0)


def finding(site: ControlSite, topic: str) -> str:
    items = site.get(f"/v1/findings?slug=copy-failing&topic={topic}")["items"]
    return items[0]["sentence"] if items else ""


def offsets(site: ControlSite, topic: str, *, until: int, first: int = 0, within_s: float = 90.0) -> list[int]:
    """Of the records that a consumer gets from `first` on, `until` of them."""
    given: dict[str, Any] = {"bootstrap.servers": site.cluster.bootstrap, "group.id": topic, "log_level": 0}
    consumer = Consumer({**given, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, first)])
    read_offsets: list[int] = []
    deadline_s = time.monotonic() + within_s
    try:
        while len(read_offsets) < until and time.monotonic() < deadline_s:
            messages = consumer.consume(until - len(read_offsets), timeout=1)
            read_offsets += [
                offset for message in messages if message.error() is None and (offset := message.offset()) is not None
            ]
    finally:
        consumer.close()
    return read_offsets
