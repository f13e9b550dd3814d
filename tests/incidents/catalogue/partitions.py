"""Partitions below their minimum or held by a transaction, and what operators do to topics on a normal day."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import away
from tests.incidents.expectations import CRITICAL, WARNING, Expected, Incident
from tests.incidents.steps import PAUSE, before, breaks, mends

INCIDENTS: Final = (
    Incident(
        name="below-min-isr",
        title="A broker is killed, and partitions are below min.insync.replicas: producers are refused",
        steps=(
            before(
                "create_topic",
                topic="payments",
                replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)),
                config={"min.insync.replicas": "3"},
            ),
            before("produce", topic="payments", records=300),
            before(PAUSE, seconds=5),
            breaks("kill", broker=2),
            mends("start", broker=2),
        ),
        expected=(
            away(2, CRITICAL, "minimum|min.insync.replicas"),
            Expected(
                slug="below-min-isr",
                objects=("payments*",),
                severity=CRITICAL,
                says=("payments", "min.insync.replicas", "2"),
                action=("broker 2",),
                never=("unclean",),
                under="broker-away",
            ),
        ),
    ),
    Incident(
        name="open-transaction",
        title="A forgotten transaction holds all copying of a partition",
        steps=(
            before("create_topic", topic="held", replicas=((1, 2, 3),), tiered=True),
            before(PAUSE, seconds=5),
            breaks("open_transaction", topic="held", partition=0, transactional_id="forgotten"),
            breaks("produce", topic="held", label="sealed", records=6_000),
            mends("abort_transaction", topic="held", partition=0),
        ),
        expected=(
            Expected(
                slug="transaction-open",
                objects=("held-0",),
                severity=WARNING,
                says=("held-0", "transaction", "forgotten", "offset 0|from 0"),
                action=("kafka-transactions", "abort"),
                never=("quota", "delete records"),
                since="sealed",
            ),
        ),
        watch_s=20,
    ),
    Incident(
        name="topic-made-again",
        title="A tiered topic is deleted and made again under its name",
        steps=(
            before("create_topic", topic="again", replicas=((1, 2, 3), (2, 3, 1)), tiered=True),
            before("produce", topic="again", records=6_000),
            before(PAUSE, seconds=15),
            breaks("delete_topic", topic="again"),
            breaks("create_topic", topic="again", replicas=((1, 2, 3), (2, 3, 1)), tiered=True),
            breaks("produce", topic="again", records=3_000),
            breaks(PAUSE, seconds=60),
        ),
    ),
    Incident(
        name="records-deleted",
        title="Records are deleted (DeleteRecords), up to an offset in the remote tier and up to the end",
        steps=(
            before("create_topic", topic="cut", replicas=((1, 2, 3), (2, 3, 1)), tiered=True),
            before("produce", topic="cut", records=12_000),
            before("wait_remote", topic="cut"),
            breaks("delete_records", topic="cut", partition=0, offset=1_500),
            breaks("delete_records", topic="cut", partition=1, offset=-1),
            breaks(PAUSE, seconds=60),
        ),
        loses=True,
    ),
    Incident(
        name="tiering-off-and-on",
        title="Tiering of a topic is turned off, with its remote data, and on again",
        steps=(
            before("create_topic", topic="switched", replicas=((1, 2, 3),), tiered=True),
            before("produce", topic="switched", records=6_000),
            before(PAUSE, seconds=15),
            breaks("tiering_off", topic="switched"),
            breaks(PAUSE, seconds=20),
            breaks("tiering_on", topic="switched"),
            breaks("produce", topic="switched", records=3_000),
            breaks(PAUSE, seconds=40),
        ),
        loses=True,
    ),
)
