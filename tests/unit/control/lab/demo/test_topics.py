from __future__ import annotations

import json

import pytest

from backend.control.findings.thresholds import DEFAULTS
from backend.control.lab.demo.payments import OPEN_S, TIMEOUT_MS
from backend.control.lab.demo.readers import GROUPS
from backend.control.lab.demo.topics import (
    CUSTOMER_PROFILES,
    INVOICES,
    MIB,
    ORDERS,
    PAYMENTS,
    RECORD_BYTES,
    TOPICS,
    RecordKind,
    record,
)

# The bytes that `ebbline up` may write for the demo, all replicas and the remote tier together.
DISK_BYTES_MAX = 1_000_000_000
REPLICAS = 3


@pytest.mark.parametrize("kind", RecordKind)
def test_a_record_has_its_size_and_is_the_same_at_each_call(kind: RecordKind) -> None:
    key, value = record(kind, 7, 1_000)
    assert record(kind, 7, 1_000) == (key, value)
    assert record(kind, 8, 1_000) != (key, value)
    assert abs(len(value) - RECORD_BYTES) < 20
    assert json.loads(value)["customer"].startswith("customer-")
    if kind is RecordKind.CUSTOMER:
        assert key.decode() == json.loads(value)["customer"]


def test_the_demo_tells_a_tiered_a_compacted_and_a_paused_topic() -> None:
    assert [topic.name for topic in TOPICS] == ["demo.orders", "demo.customers", "demo.invoices", "demo.payments"]
    assert ORDERS.partitions == 3
    assert ORDERS.config["remote.storage.enable"] == INVOICES.config["remote.storage.enable"] == "true"
    assert CUSTOMER_PROFILES.config["cleanup.policy"] == "compact"
    assert INVOICES.paused_config is not None
    assert INVOICES.paused_config["remote.log.copy.disable"] == "true"
    # Kafka takes the pause only where local retention is retention (KIP-950).
    assert INVOICES.paused_config["local.retention.bytes"] == INVOICES.paused_config["local.retention.ms"] == "-2"


def test_one_group_is_slower_than_its_topic_and_one_has_no_members() -> None:
    groups = {group.name: group for group in GROUPS}
    assert groups["demo-analytics"].bytes_per_s < ORDERS.bytes_per_s
    assert groups["demo-analytics"].begins == "earliest"
    assert [name for name, group in groups.items() if not group.member] == ["demo-audit"]
    assert groups["demo-shop"].bytes_per_s > sum(topic.bytes_per_s for topic in TOPICS)


def test_copying_has_something_to_wait_for_while_the_forgotten_transaction_is_open() -> None:
    assert PAYMENTS.config["remote.storage.enable"] == "true"
    sealed_every_s = int(PAYMENTS.config["segment.bytes"]) / PAYMENTS.bytes_per_s
    # Beside the transaction's own segment the next one must be sealed, and then stand for the finding's hold.
    assert 2 * sealed_every_s + DEFAULTS.transaction_held_s < OPEN_S < TIMEOUT_MS / 1000


def test_all_of_it_fits_on_a_small_disk() -> None:
    local = remote = 0
    for topic in TOPICS:
        retention = int(topic.config.get("retention.bytes", 4 * MIB))
        paused = topic.paused_config is not None
        kept_local = retention if paused else int(topic.config.get("local.retention.bytes", retention))
        # One active segment, one that is being copied.
        local += REPLICAS * topic.partitions * (kept_local + 2 * MIB)
        remote += topic.partitions * retention if topic.config.get("remote.storage.enable") else 0
    assert local + remote < DISK_BYTES_MAX / 3
