"""Alertmanager's API v2: many alerts at once, sent again while they are open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.alertmanager_body import Alerts, alertmanager_body
from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.alerts.receiver_config import ReceiverConfig
from backend.control.alerts.receiver_queue import Delivery
from backend.control.alerts.senders.http_posts import HttpPosts
from backend.control.alerts.senders.send_result import SendResult
from backend.control.findings.finding_context import NOTICE, FindingKey
from backend.control.wall_clock import now_ms

ALERTS_PATH = "/api/v2/alerts"


class AlertmanagerSender:
    """Sends to one Alertmanager."""

    def __init__(self, config: ReceiverConfig, cluster: ClusterName) -> None:
        self._cluster = cluster
        self._posts = HttpPosts(config.urls[0].rstrip("/") + ALERTS_PATH, config.headers)

    async def send(self, delivery: Delivery, open_there: Mapping[FindingKey, Notice]) -> SendResult:
        """The alerts of a delivery."""
        before = {key: notice.severity for key, notice in open_there.items()}
        return await self._post(alertmanager_body(delivery.notices, before, self._cluster))

    async def resend(self, notices: Iterable[Notice]) -> SendResult:
        """The alerts that are open: one that is not repeated ends after Alertmanager's `resolve_timeout`."""
        return await self._post(alertmanager_body(notices, {}, self._cluster))

    async def test(self) -> SendResult:
        """An alert that ends by itself."""
        text = "ebbline reaches this Alertmanager; nothing is wrong."
        notice = Notice(
            NoticeEvent.OPENED, now_ms(), "ebbline-test", "test", NOTICE, text, "", {}, None, None, None, now_ms()
        )
        return await self._post(alertmanager_body([notice], {}, self._cluster))

    async def close(self) -> None:
        """Gives the connection back."""
        await self._posts.close()

    async def _post(self, alerts: Alerts) -> SendResult:
        return await self._posts.post(json.dumps(alerts, ensure_ascii=False).encode(), {})
