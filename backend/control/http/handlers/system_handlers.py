"""Handlers for machines: is it up, is it ready, numbers, documentation."""

from __future__ import annotations

import asyncio
import os

from backend.control.http.api_models import HealthAnswer, ReadyAnswer
from backend.control.http.call import Call, HandlerResult
from backend.control.http.openapi import JsonObject
from backend.control.http.product_metrics import ProductMetrics
from backend.control.http.readiness_checks import ReadinessChecks


class SystemHandlers:
    """Health, metrics and documentation of this process."""

    def __init__(
        self, started_ms: int, readiness: ReadinessChecks, metrics: ProductMetrics, openapi: JsonObject
    ) -> None:
        self._started_ms = started_ms
        self._readiness = readiness
        self._metrics = metrics
        self._openapi = openapi

    async def healthz(self, call: Call) -> HealthAnswer:
        """The process is up."""
        return HealthAnswer(status="up", pid=os.getpid(), started_ms=self._started_ms)

    async def readyz(self, call: Call) -> HandlerResult:
        """200 when the cluster answers and the database takes writes; 503 names what does not."""
        readiness = self._readiness
        checks = await readiness.checks()
        ready = all(problem is None for problem in checks.values())
        result = ReadyAnswer(
            ready=ready,
            starting=readiness.starting,
            checks=checks,
            missing_rights=readiness.missing_rights,
            database_responded_ms=readiness.database_responded_ms,
        )
        return HandlerResult(result, 200 if ready else 503)

    async def metrics(self, call: Call) -> HandlerResult:
        """Prometheus text of the product and of all brokers in this process."""
        # On a thread: brokers in other processes are asked over the network.
        text = await asyncio.to_thread(self._metrics.exposition)
        return HandlerResult(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, call: Call) -> HandlerResult:
        """This API, as OpenAPI 3.1."""
        return HandlerResult(self._openapi)
