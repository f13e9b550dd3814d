"""Handlers for machines: is it up, is it ready, numbers, documentation."""

from __future__ import annotations

import asyncio
import os

from backend.control.http.api_models import HealthAnswer, ReadyAnswer
from backend.control.http.call import Call, HandlerResult


async def healthz(call: Call) -> HealthAnswer:
    """The process is up."""
    return HealthAnswer(status="up", pid=os.getpid(), started_ms=call.control.started_ms)


async def readyz(call: Call) -> HandlerResult:
    """200 when the cluster answers and the database takes writes; 503 names what does not."""
    readiness = call.control.readiness
    checks = await readiness.checks()
    ready = all(problem is None for problem in checks.values())
    return HandlerResult(ReadyAnswer(ready=ready, starting=readiness.starting, checks=checks), 200 if ready else 503)


async def metrics(call: Call) -> HandlerResult:
    """Prometheus text of the product and of all brokers in this process."""
    # On a thread: brokers in processes of their own are asked over the network.
    text = await asyncio.to_thread(call.control.metrics.exposition)
    return HandlerResult(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def openapi(call: Call) -> HandlerResult:
    """This API, as OpenAPI 3.1."""
    return HandlerResult(call.control.openapi)
