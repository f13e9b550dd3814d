"""The demo's forgotten transaction on a running cluster: it holds the last stable offset, and a stop sets it free."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from backend.control.lab.demo import payments
from backend.control.lab.demo.topics import PAYMENTS
from tests.engine_cluster import EngineCluster
from tests.waiting import wait_until

PARTITION = TopicPartition(PAYMENTS.name, 0)


def ends(admin: AdminClient) -> tuple[int, int]:
    """Last stable offset and high watermark."""
    request = {PARTITION: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    stable, every = (
        admin.list_offsets(request, isolation_level=level)[PARTITION].result(10).offset
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return stable, every


@pytest.mark.parametrize("open_s", [300.0, 1.0], ids=["aborted by a stop", "committed"])
def test_the_last_stable_offset_waits_until_the_transaction_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_s: float
) -> None:
    monkeypatch.setattr(payments, "BEGINS_AFTER_S", 0.0)
    monkeypatch.setattr(payments, "OPEN_S", open_s)
    with EngineCluster(tmp_path, brokers=1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(PAYMENTS.name, 1, 1)])[PAYMENTS.name].result(10)
        transactions = payments.PaymentTransactions(cluster.bootstrap)
        transactions.start()
        try:
            wait_until("it is open", lambda: ends(admin) == (0, 1))
            if open_s < 60:
                wait_until("it is committed", lambda: ends(admin) == (2, 2))
        finally:
            transactions.stop()
        wait_until("nothing is held", lambda: ends(admin) == (2, 2))
