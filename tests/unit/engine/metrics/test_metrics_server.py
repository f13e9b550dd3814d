"""A scrape of some families reads no others."""

from __future__ import annotations

import httpx
import pytest

from backend.control.observer.watches.broker_numbers import OWN_FAMILIES, parse
from backend.engine.metrics import BrokerMetrics
from backend.engine.metrics.metrics_server import serve_metrics

QUEUE = OWN_FAMILIES[0]


def test_a_scrape_by_name_reads_and_shows_only_what_it_names() -> None:
    reads: list[str] = []

    def reading(name: str, value: float) -> float:
        reads.append(name)
        return value

    metrics = BrokerMetrics(7)
    metrics.add_gauge(QUEUE, "", lambda: reading("queue", 3.0))
    metrics.add_gauge("of_every_partition", "", lambda: reading("partitions", 1.0))
    metrics.add_counter("kafka_server_brokertopicmetrics_remotecopyerrors", "", lambda: reading("errors", 5.0))
    server = serve_metrics(metrics, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        some = httpx.get(url, params={"name[]": list(OWN_FAMILIES)}).text
        assert sorted(reads) == ["errors", "queue"]
        everything = httpx.get(url).text
    finally:
        server.close()
    assert {line.split("{")[0] for line in some.splitlines() if not line.startswith("#")} == {
        QUEUE,
        "kafka_server_brokertopicmetrics_remotecopyerrors_total",
    }
    assert "of_every_partition" in everything
    assert "kafka_network_requestmetrics_requests" in everything
    assert parse(some) == parse(everything)
    assert parse(some)["copy_errors"] == pytest.approx(5.0)
