"""Numbers of receivers, of the alerts file and of the heartbeat in `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from backend.control.alerts.alert_delivery import AlertDelivery
from backend.control.alerts.heartbeat import LifeSignal
from backend.control.alerts.prometheus_rules import RECEIVER_METRIC
from backend.control.alerts.receiver_task import ReceiverStatus

_OF_RECEIVER: Final[tuple[tuple[str, str, Callable[[ReceiverStatus], float]], ...]] = (
    (RECEIVER_METRIC, "0 while a receiver takes no messages", lambda r: float(r.failing_since_ms is None)),
    ("ebbline_receiver_waiting", "Findings whose newest state waits for a receiver", lambda r: r.waiting),
    ("ebbline_receiver_delivered", "Messages that a receiver took since the start", lambda r: r.delivered),
    ("ebbline_receiver_refused", "Messages that a receiver refused for good since the start", lambda r: r.refused),
    ("ebbline_receiver_superseded", "States given up because too many waited", lambda r: r.superseded),
    ("ebbline_receiver_open", "Findings that a receiver has as open", lambda r: r.open_there),
)


class AlertMetrics:
    """A source of metrics, read at each scrape."""

    def __init__(self, alerts: AlertDelivery, life_signal: LifeSignal) -> None:
        self._alerts = alerts
        self._life_signal = life_signal

    def collect(self) -> Iterator[Metric]:
        statuses = self._alerts.statuses
        for name, documentation, number in _OF_RECEIVER:
            family = GaugeMetricFamily(name, documentation, labels=["receiver"])
            for status in statuses:
                family.add_metric([status.name], number(status))
            yield family
        usable = GaugeMetricFamily("ebbline_alerts_file_usable", "0 while the alerts file has a mistake")
        if self._alerts.files.there:
            usable.add_metric([], float(self._alerts.files.mistake is None))
        yield usable
        sent = GaugeMetricFamily("ebbline_heartbeat_timestamp_seconds", "Time of the last heartbeat that was taken")
        if self._life_signal.sent_s is not None:
            sent.add_metric([], self._life_signal.sent_s)
        yield sent
