"""Numbers that only a broker's own metrics have: Prometheus text of each broker, fetched now and then.

`--broker-metrics http://{host}:7071/metrics` names the page of each broker; brokers of this process are read directly.
Names differ with the exporter's rules, so a sample is recognised by its letters and digits alone: both
`kafka_server_brokertopicmetrics_remotecopyerrors_total` and
`kafka_server_BrokerTopicMetrics_Count{name="RemoteCopyErrorsPerSec"}` are the copy errors.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx
from prometheus_client.metrics_core import Metric

from backend.runtime.redact import redact_url

# The page of a broker with 10,000 partitions has some 5 MB.
PAGE_BYTES_MAX: Final = 32 << 20
TIMEOUT_S: Final = 5.0
INTERVAL_S: Final = 15.0
NOT_GIVEN: Final = "Only the broker's own metrics tell it: give --broker-metrics URL_TEMPLATE."
NOT_ASKED: Final = "It was not asked yet; wait a moment."
_LINE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_log = logging.getLogger(__name__)

# Our name, the letters a sample must have, and those one of which it must end with (nothing: any).
NUMBERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "reader_queue": ("remotelogreadertaskqueuesize", ()),
    "copy_errors": ("remotecopyerrors", ("total", "count", "counttotal")),
    "copied_bytes": ("remotecopybytes", ("total", "count", "counttotal")),
    "fetch_errors": ("remotefetcherrors", ("total", "count", "counttotal")),
    "fetched_bytes": ("remotefetchbytes", ("total", "count", "counttotal")),
    "passed_over": ("recordspassedover", ("total",)),
    "fetch_requests": ("remotefetchrequests", ("total", "count", "counttotal")),
    # Of that class Kafka has this meter alone.
    "expired_fetches": ("delayedremotefetchmetrics", ("total", "count", "counttotal")),
    "copy_lag_bytes": ("remotecopylagbytes", ()),
}
# Numbers that rules also want by topic.
BY_TOPIC: Final = frozenset({"copy_lag_bytes", "fetch_errors", "fetch_requests", "fetched_bytes", "passed_over"})
# Topics whose numbers are kept of a broker: 10,000 of 400 bytes are 4 MB.
TOPICS_MAX: Final = 10_000


# Families of the embedded engine that have them; its brokers are asked for no others.
OWN_FAMILIES: Final = (
    "kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize",
    "kafka_server_brokertopicmetrics_remotecopyerrors_total",
    "kafka_server_brokertopicmetrics_remotecopybytes_total",
    "kafka_server_brokertopicmetrics_remotefetcherrors_total",
    "kafka_server_brokertopicmetrics_remotefetchbytes_total",
    "ebbline_records_passed_over_total",
    "kafka_server_brokertopicmetrics_remotefetchrequests_total",
    "kafka_server_delayedremotefetchmetrics_expires_total",
    "kafka_server_brokertopicmetrics_remotecopylagbytes",
)
TopicNumbers = Mapping[str, Mapping[str, float]]
"""A broker's numbers by topic, those of :data:`BY_TOPIC` that it tells."""


class BrokerMetricSource(Protocol):
    """A broker's meters."""

    def collect(self) -> Iterable[Metric]: ...

    def only(self, names: Collection[str], /) -> BrokerMetricSource:
        """The families of these names: a page of all has lines for every partition."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerNumbers:
    """A broker's numbers of one moment. A number that is None is not known; `error` says why none is."""

    broker_id: int
    at_ms: int | None = None
    values: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(NUMBERS))
    error: str | None = NOT_GIVEN


def check_template(template: str) -> str:
    """A usable template. Raises ValueError with one sentence."""
    try:
        url = httpx.URL(template.format(host="broker", id=1))
    except (KeyError, IndexError, ValueError, AttributeError, httpx.InvalidURL) as error:
        shown = redact_url(template)
        raise ValueError(f"{shown!r} is no address: {{host}} and {{id}} are what may be filled in.") from error
    if url.scheme not in ("http", "https") or not url.host or not {"{host}", "{id}"} & set(_fields(template)):
        shown = redact_url(template)
        raise ValueError(f"{shown!r} is no address of each broker: give one like http://{{host}}:7071/metrics.")
    return template


def _fields(template: str) -> list[str]:
    return re.findall(r"\{\w+\}", template)


@dataclass(frozen=True, slots=True)
class PageNumbers:
    """The numbers of one page."""

    values: dict[str, float | None]
    topics: dict[str, dict[str, float]]


def parse(text: str) -> dict[str, float | None]:
    """The numbers of a page of Prometheus text as a whole, of all topics; see :func:`parse_page`."""
    return parse_page(text).values


def parse_page(text: str) -> PageNumbers:
    """The numbers of a page of Prometheus text; what is not there is None.

    A broker's total and its parts by topic have the same name: the total wins, else the parts are summed.
    """
    totals: dict[str, float] = {}
    parts: dict[str, float] = {}
    topics: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("#") or ("emote" not in line and "passed_over" not in line):
            continue
        sample = _LINE.match(line)
        if sample is None:
            continue
        labels = dict(_LABEL.findall(sample[2] or ""))
        name = _number(sample[1], labels)
        value = _float(sample[3])
        if name is None or value is None:
            continue
        topic = labels.get("topic")
        kept = parts if topic else totals
        kept[name] = kept.get(name, 0.0) + value
        if topic and name in BY_TOPIC and (topic in topics or len(topics) < TOPICS_MAX):
            of_topic = topics.setdefault(topic, {})
            of_topic[name] = of_topic.get(name, 0.0) + value
    return PageNumbers({name: totals.get(name, parts.get(name)) for name in NUMBERS}, topics)


def _number(metric: str, labels: Mapping[str, str]) -> str | None:
    normalized = "".join(c for c in f"{labels.get('name', '')}{metric}".lower() if c.isalnum())
    for name, (contained, ends) in NUMBERS.items():
        if contained in normalized and (not ends or normalized.endswith(ends)):
            return name
    return None


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class BrokerPages:
    """The newest numbers of every broker. Belongs to one event loop."""

    def __init__(self, template: str | None) -> None:
        self._template = template
        self.numbers: Mapping[int, BrokerNumbers] = {}
        self.topics: Mapping[int, TopicNumbers] = {}

    async def refresh(self, hosts: Mapping[int, str], at_ms: int) -> None:
        """Asks every broker at once, host by broker id. Never raises for one that does not answer."""
        if self._template is None:
            self.numbers = {broker_id: BrokerNumbers(broker_id) for broker_id in hosts}
            return
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            by_broker = await asyncio.gather(*(self._ask(client, i, host, at_ms) for i, host in sorted(hosts.items())))
        self.numbers = {numbers.broker_id: numbers for numbers, _ in by_broker}
        self.topics = {numbers.broker_id: topics for numbers, topics in by_broker}

    async def _ask(
        self, client: httpx.AsyncClient, broker_id: int, host: str, at_ms: int
    ) -> tuple[BrokerNumbers, TopicNumbers]:
        assert self._template is not None
        url = self._template.format(host=f"[{host}]" if ":" in host else host, id=broker_id)
        try:
            text = await asyncio.wait_for(_page(client, url), TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            cause = str(error) or type(error).__name__
            _log.debug("broker %d shows no metrics at %s: %s", broker_id, url, cause)
            error_text = f"Broker {broker_id} shows no metrics at {url} ({cause[:200]})."
            return BrokerNumbers(broker_id, error=error_text), {}
        page = await asyncio.to_thread(parse_page, text)
        is_empty = all(value is None for value in page.values.values())
        missing = None if not is_empty else f"The page {url} has none of the numbers."
        return BrokerNumbers(broker_id, at_ms, page.values, missing), page.topics


async def _page(client: httpx.AsyncClient, url: str) -> str:
    async with client.stream("GET", url) as response:
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > PAGE_BYTES_MAX:
                raise ValueError(f"the page has more than {PAGE_BYTES_MAX} bytes")
    return body.decode("utf-8", "replace")
