"""A broker's meters as Prometheus metric families, made at scrape time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from backend.engine.metrics.broker_metrics import TOPIC_METERS, BrokerMetrics, ScrapedMetric

# kafka.server:type=socket-server-metrics
_SOCKETS: Final = "kafka_server_socket_server_metrics"

_log = logging.getLogger(__name__)


class BrokerCollector(Collector):
    """The metric families of one broker's ``/metrics``; every series carries the label ``broker``."""

    def __init__(self, metrics: BrokerMetrics, names: Collection[str] | None = None) -> None:
        """`names`: of the families to show, with or without a counter's ``_total``; None: all."""
        self._metrics = metrics
        self._broker = str(metrics.broker_id)
        self._names = names

    def only(self, names: Collection[str]) -> BrokerCollector:
        """The same with these families alone: the others, of which some walk all partitions, are not even read."""
        return BrokerCollector(self._metrics, frozenset(names))

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for family in (*self._topics(), *self._requests(), *self._connections()):
            if self._is_wanted(family.name):
                yield family
        for pulled in list(self._metrics.gauges):
            if self._is_wanted(pulled.name):
                yield from self._pulled(pulled, counter=False)
        for pulled in list(self._metrics.counters):
            if self._is_wanted(pulled.name):
                yield from self._pulled(pulled, counter=True)

    def _is_wanted(self, name: str) -> bool:
        return self._names is None or name in self._names or f"{name}_total" in self._names

    def _topics(self) -> Iterator[Metric]:
        topics = list(self._metrics.topics.items())
        total = self._metrics.all_topics
        for name in TOPIC_METERS:
            # The broker's total and its parts have the same name in Kafka; the total has an empty label topic.
            family = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", f"BrokerTopicMetrics {name}", labels=("broker", "topic")
            )
            family.add_metric((self._broker, ""), getattr(total, name))
            for topic, meters in topics:
                value = getattr(meters, name)
                if value:
                    family.add_metric((self._broker, topic), value)
            yield family

    def _requests(self) -> Iterator[Metric]:
        labels = ("broker", "request")
        requests = list(self._metrics.requests.items())
        counts = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests answered", labels=labels)
        errors = CounterMetricFamily("kafka_network_requestmetrics_errors", "Requests that failed", labels=labels)
        times = SummaryMetricFamily("kafka_network_requestmetrics_totaltimems", "Milliseconds to answer", labels=labels)
        longest = GaugeMetricFamily("ebbline_request_time_ms_max", "Slowest answer so far", labels=labels)
        for name, meter in requests:
            key = (self._broker, name)
            counts.add_metric(key, meter.count)
            errors.add_metric(key, meter.errors)
            times.add_metric(key, count_value=meter.count, sum_value=meter.total_time_ms)
            longest.add_metric(key, meter.max_time_ms)
        yield from (counts, errors, times, longest)

    def _connections(self) -> Iterator[Metric]:
        metrics = self._metrics
        gauge = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count", "Open connections", labels=("broker",)
        )
        gauge.add_metric((self._broker,), metrics.open_connections)
        yield gauge
        for name, doc, value in (
            (
                "ebbline_malformed_frames",
                "Connections closed for a frame that could not be read",
                metrics.malformed_frames,
            ),
            ("ebbline_refused_connections", "Connections refused at the limit", metrics.refused_connections),
            (f"{_SOCKETS}_successful_authentication", "SASL authentications", metrics.successful_authentications),
            (
                f"{_SOCKETS}_failed_authentication",
                "TLS handshakes and SASL authentications that failed",
                metrics.failed_authentications,
            ),
            (
                f"{_SOCKETS}_expired_connections_killed",
                "Connections closed because their authentication was over",
                metrics.expired_connections,
            ),
        ):
            family = CounterMetricFamily(name, doc, labels=("broker",))
            family.add_metric((self._broker,), value)
            yield family
        doc = "Records and batches of internal topics passed over since the start because they cannot be read"
        family = CounterMetricFamily("ebbline_records_passed_over", doc, labels=("broker", "topic"))
        for topic, count in metrics.unreadable_records.counts.items():
            family.add_metric((self._broker, topic), count)
        yield family

    def _pulled(self, pulled: ScrapedMetric, *, counter: bool) -> Iterator[Metric]:
        try:
            reading = pulled.read()
            rows: list[tuple[Mapping[str, str], float]]
            rows = [({}, float(reading))] if isinstance(reading, (int, float)) else list(reading)
        except RuntimeError as error:
            # The loop's thread changed a dict while this one walked it; the next scrape has the value.
            _log.debug("Metric %s of broker %s was changing while it was read: %s", pulled.name, self._broker, error)
            return
        names = ("broker", *(rows[0][0] if rows else ()))
        kind = CounterMetricFamily if counter else GaugeMetricFamily
        family = kind(pulled.name, pulled.doc, labels=names)
        for labels, value in rows:
            family.add_metric((self._broker, *(labels.get(name, "") for name in names[1:])), value)
        yield family
