"""The webhook: our own JSON, signed where there is a secret."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.notices import Notice
from backend.control.alerts.receiver_config import ReceiverConfig
from backend.control.alerts.receiver_queue import Delivery
from backend.control.alerts.senders.http_posts import HttpPosts
from backend.control.alerts.senders.send_result import SendResult
from backend.control.alerts.webhook_body import (
    DELIVERY_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    VERSION,
    delivery_id,
    signature,
    webhook_body,
)
from backend.control.findings.finding_context import FindingKey
from backend.control.wall_clock import now_ms


class WebhookSender:
    """Sends to one address."""

    def __init__(self, config: ReceiverConfig, cluster: ClusterName) -> None:
        self._config = config
        self._cluster = cluster
        self._posts = HttpPosts(config.urls[0], config.headers)

    async def send(self, delivery: Delivery, open_there: Mapping[FindingKey, Notice]) -> SendResult:
        """A try: the number of the delivery stays from try to try, the timestamp does not."""
        del open_there
        number = delivery_id(delivery, self._cluster.cluster_id, self._config.name)
        return await self._post(webhook_body(delivery, self._cluster), number)

    async def test(self) -> SendResult:
        """A message of the event `test`."""
        about = {"cluster_id": self._cluster.cluster_id, "cluster_name": self._cluster.name}
        body = {"version": VERSION, "event": "test", "at_ms": now_ms(), **about}
        return await self._post(json.dumps(body).encode(), secrets.token_hex(16))

    async def close(self) -> None:
        """Gives the connection back."""
        await self._posts.close()

    async def _post(self, body: bytes, number: str) -> SendResult:
        headers = {DELIVERY_HEADER: number}
        if self._config.secret is not None:
            now_s = int(time.time())
            headers |= {
                TIMESTAMP_HEADER: str(now_s),
                SIGNATURE_HEADER: signature(self._config.secret, now_s, body),
            }
        return await self._posts.post(body, headers)
