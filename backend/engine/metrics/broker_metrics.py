"""The meters of one broker. Names: Kafka's MBeans through the JMX exporter's rules, lower case.

Everything is written on the loop's thread and read on the scraping one: integers and copies of dicts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from backend.engine.common.unreadable_records import UnreadableRecords

# A value, or one value per set of labels.
MetricValue = float | Iterable[tuple[Mapping[str, str], float]]

# Topics whose meters are kept apart; the rest counts in the broker's totals only. A dozen integers each, under 1 kB.
TOPICS_MAX: Final = 5000


@dataclass(slots=True)
class TopicMeters:
    """kafka.server:type=BrokerTopicMetrics of one topic, or of all."""

    messagesin: int = 0
    bytesin: int = 0
    bytesout: int = 0
    bytesrejected: int = 0
    failedproducerequests: int = 0
    totalproducerequests: int = 0
    totalfetchrequests: int = 0
    replicationbytesin: int = 0
    replicationbytesout: int = 0
    invalidmessagecrcrecords: int = 0
    invalidoffsetorsequencerecords: int = 0
    nokeycompactedtopicrecords: int = 0


TOPIC_METERS: Final = tuple(meter.name for meter in fields(TopicMeters))


@dataclass(slots=True)
class RequestMeter:
    """kafka.network:type=RequestMetrics of one API."""

    count: int = 0
    errors: int = 0
    total_time_ms: float = 0.0
    max_time_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ScrapedMetric:
    """A metric whose value is asked for at scrape time."""

    name: str
    doc: str
    read: Callable[[], MetricValue]


class BrokerMetrics:
    """The meters of one broker, and the gauges its parts registered."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.all_topics = TopicMeters()
        self.topics: dict[str, TopicMeters] = {}
        self.requests: dict[str, RequestMeter] = {}
        self.malformed_frames = 0
        self.refused_connections = 0
        self.open_connections = 0
        # TLS handshakes and SASL together, as Kafka's SocketServer metrics.
        self.successful_authentications = 0
        self.failed_authentications = 0
        self.expired_connections = 0
        self.unreadable_records = UnreadableRecords()
        """Records of internal topics that cannot be read."""
        self.gauges: list[ScrapedMetric] = []
        self.counters: list[ScrapedMetric] = []

    def topic(self, name: str) -> TopicMeters:
        """The meters of one topic; count the same in :attr:`all_topics`."""
        meters = self.topics.get(name)
        if meters is None:
            if len(self.topics) >= TOPICS_MAX:
                return TopicMeters()
            meters = self.topics[name] = TopicMeters()
        return meters

    def forget_topic(self, name: str) -> None:
        """The topic is gone from this broker."""
        self.topics.pop(name, None)

    def request(self, api_name: str) -> RequestMeter:
        """The meter of one API."""
        meters = self.requests.get(api_name)
        if meters is None:
            meters = self.requests[api_name] = RequestMeter()
        return meters

    def add_gauge(self, name: str, doc: str, read: Callable[[], MetricValue]) -> None:
        """``read`` is called on the scraping thread: it must only read, and copy a dict before it walks it."""
        self.gauges.append(ScrapedMetric(name, doc, read))

    def add_counter(self, name: str, doc: str, read: Callable[[], MetricValue]) -> None:
        """As :meth:`add_gauge`, for values that only grow; ``name`` without ``_total``."""
        self.counters.append(ScrapedMetric(name, doc, read))
