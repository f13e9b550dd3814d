"""Brokers' own metrics: the pages of two exporters, what is missing, and pages that cannot be had."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backend.control.observer.watches.broker_numbers import (
    NOT_GIVEN,
    BrokerPages,
    check_template,
    parse,
    parse_page,
)
from tests.control.test_gateway import serving

JMX = """\
# HELP kafka_server_BrokerTopicMetrics_Count RemoteCopyErrorsPerSec
kafka_server_BrokerTopicMetrics_Count{name="RemoteCopyErrorsPerSec",} 7.0
kafka_server_BrokerTopicMetrics_Count{name="RemoteCopyErrorsPerSec",topic="orders",} 7.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteCopyErrorsPerSec",} 0.5
kafka_server_BrokerTopicMetrics_Count{name="RemoteCopyBytesPerSec",topic="a",} 1.5e3
kafka_server_BrokerTopicMetrics_Count{name="RemoteCopyBytesPerSec",topic="b",} 500.0
kafka_log_remote_RemoteStorageThreadPool_Value{name="RemoteLogReaderTaskQueueSize",} 3.0
kafka_server_BrokerTopicMetrics_Count{name="RemoteFetchErrorsPerSec",} NaN
"""
OWN = """\
kafka_server_brokertopicmetrics_remotecopyerrors_total{broker="1",topic=""} 2.0
kafka_server_brokertopicmetrics_remotecopyerrors_created{broker="1",topic=""} 1.7e9
kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize{broker="1"} 0.0
kafka_server_brokertopicmetrics_remotefetchbytes_total{broker="1",topic="a\\"}b"} 9.0 1700000000000
remote nonsense
"""


def test_numbers_are_recognised_whatever_the_exporter_calls_them() -> None:
    assert parse(JMX) == {
        "reader_queue": 3.0,
        "copy_errors": 7.0,
        "copied_bytes": 2000.0,
        "fetch_errors": None,
        "fetched_bytes": None,
        "passed_over": None,
        "fetch_requests": None,
        "expired_fetches": None,
        "copy_lag_bytes": None,
    }
    own = parse(OWN)
    assert (own["reader_queue"], own["copy_errors"], own["fetched_bytes"], own["copied_bytes"]) == (0.0, 2.0, 9.0, None)


@pytest.mark.parametrize(
    "page",
    [
        """\
kafka_server_BrokerTopicMetrics_Value{name="RemoteCopyLagBytes",} 900.0
kafka_server_BrokerTopicMetrics_Value{name="RemoteCopyLagBytes",topic="orders",} 900.0
kafka_server_BrokerTopicMetrics_Count{name="RemoteFetchErrorsPerSec",topic="orders",} 28.0
kafka_server_BrokerTopicMetrics_Count{name="RemoteFetchRequestsPerSec",topic="orders",} 30.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteFetchErrorsPerSec",topic="orders",} 0.5
kafka_server_DelayedRemoteFetchMetrics_Count{name="ExpiresPerSec",} 388.0
kafka_server_DelayedRemoteFetchMetrics_OneMinuteRate{name="ExpiresPerSec",} 1.0
""",
        """\
kafka_server_brokertopicmetrics_remotecopylagbytes{broker="1",topic=""} 900.0
kafka_server_brokertopicmetrics_remotecopylagbytes{broker="1",topic="orders"} 900.0
kafka_server_brokertopicmetrics_remotefetcherrors_total{broker="1",topic="orders"} 28.0
kafka_server_brokertopicmetrics_remotefetchrequests_total{broker="1",topic="orders"} 30.0
kafka_server_delayedremotefetchmetrics_expires_total{broker="1"} 388.0
kafka_server_delayedremotefetchmetrics_expires_created{broker="1"} 1.7e9
""",
    ],
    ids=["JMX exporter", "embedded engine"],
)
def test_what_fails_and_waits_is_told_by_topic(page: str) -> None:
    result = parse_page(page)
    assert (result.values["expired_fetches"], result.values["copy_lag_bytes"]) == (388.0, 900.0)
    assert result.topics == {"orders": {"copy_lag_bytes": 900.0, "fetch_errors": 28.0, "fetch_requests": 30.0}}


def test_a_broker_whose_page_cannot_be_had_is_told_with_its_cause() -> None:
    async def run() -> None:
        async def page(reader: Any, writer: Any) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            body = JMX if "/1/metrics" in head else ""
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())

        async with serving(page) as address:
            pages = BrokerPages(check_template(f"http://{{host}}:{address.port}/{{id}}/metrics"))
            await pages.refresh({1: "127.0.0.1", 2: "127.0.0.1", 3: "127.0.0.2"}, 5)
        numbers = pages.numbers
        assert (numbers[1].values["reader_queue"], numbers[1].at_ms, numbers[1].error) == (3.0, 5, None)
        assert "has none of the numbers" in (numbers[2].error or "")
        assert "Broker 3 shows no metrics" in (numbers[3].error or "")
        assert set(numbers[3].values.values()) == {None}

    asyncio.run(run())


def test_without_a_template_every_number_is_unknown_and_says_what_to_give() -> None:
    pages = BrokerPages(None)
    asyncio.run(pages.refresh({1: "a"}, 5))
    assert (pages.numbers[1].error, set(pages.numbers[1].values.values())) == (NOT_GIVEN, {None})


@pytest.mark.parametrize(
    "template", ["{host}:7071", "http://{port}/", "http://host:7071/metrics", "http://{host", "ftp://{host}/", "{0}"]
)
def test_a_template_that_is_no_address_of_each_broker_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        check_template(template)
