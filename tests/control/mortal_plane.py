"""A control plane in a separate process that carries out a plan and kills itself (SIGKILL) at a given request.

Started by `multiprocessing` from a fork server, so that a start costs no imports.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from backend.control.control_plane import ControlPlane
from backend.control.control_settings import ControlSettings
from backend.control.gateway.kafka_client import Gateway
from backend.control.operations.audit_entries import Actor, ActorRole
from backend.control.operations.lifecycle.plan_claim import Confirmation
from backend.protocol import messages as m

OPERATOR = Actor("operator", ActorRole.OPERATOR)
WRITES = (m.IncrementalAlterConfigsRequest, m.AlterPartitionReassignmentsRequest, m.ElectLeadersRequest)


def carry_out(settings: dict[str, Any], plan_id: int, kill_at: int, *, answered: bool) -> None:
    """Executes the plan, or goes on with it, until it has ended; dies at the `kill_at`-th request that changes
    something: before it is sent, or when it was `answered`.
    """
    die_at_request(kill_at, answered=answered)
    asyncio.run(_until_ended(ControlSettings(**settings), plan_id))


def die_at_request(number: int, *, answered: bool) -> None:
    """From here on this process dies at its `number`-th changing request."""
    seen = 0
    real_any, real_node = Gateway.ask_any, Gateway.ask_node

    async def mortal(real: Any, self: Gateway, *given: Any, **more: Any) -> Any:
        nonlocal seen
        request = next(part for part in given if isinstance(part, m.Message))
        counts = isinstance(request, WRITES) and not getattr(request, "validate_only", False)
        seen += counts
        if counts and seen == number and not answered:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await real(self, *given, **more)
        if counts and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    async def ask_any(self: Gateway, *given: Any, **more: Any) -> Any:
        return await mortal(real_any, self, *given, **more)

    async def ask_node(self: Gateway, *given: Any, **more: Any) -> Any:
        return await mortal(real_node, self, *given, **more)

    setattr(Gateway, "ask_any", ask_any)  # noqa: B010  a plain assignment is no valid type
    setattr(Gateway, "ask_node", ask_node)  # noqa: B010


async def _until_ended(settings: ControlSettings, plan_id: int) -> None:
    plane = ControlPlane(settings)
    await plane.start()
    try:
        await plane.parts.database.opened()
        if (await plane.parts.operations.get(plan_id)).state == "checked":
            await plane.parts.operations.execute(
                OPERATOR, plan_id, Confirmation(f"mortal-{plan_id}", settings.cluster_name, "a test"), wait_s=0
            )
        while (await plane.parts.operations.get(plan_id)).finished_ms is None:
            await asyncio.sleep(0.05)
    finally:
        await plane.stop()
