"""Handlers of the lab: what is run on the embedded cluster to look at it. Who began what stands in the audit."""

from __future__ import annotations

from backend.control.http.call import Answer, Call
from backend.control.http.schemas import BootstrapAnswer, BootstrapBody
from backend.control.operations.audit import AuditEntry, AuditResult, record
from backend.control.operations.errors import OperationError
from backend.control.words import in_bytes


async def start_bootstrap(call: Call) -> Answer:
    """Begins a race; 202 with the run, whose progress `get_bootstrap` tells."""
    body: BootstrapBody = call.body
    asked = f"{in_bytes(body.size_bytes)}, {body.tiered_percent} % tiered"
    try:
        run = await call.control.bootstrap_lab.start(body.size_bytes, body.tiered_percent)
    except OperationError as error:
        await _audit(call, "start bootstrap race", AuditResult.REFUSED, str(error))
        raise
    await _audit(call, "start bootstrap race", AuditResult.ACCEPTED, asked)
    return Answer(BootstrapAnswer(run=run), 202)


async def get_bootstrap(call: Call) -> BootstrapAnswer:
    """The race as it is now."""
    return BootstrapAnswer(run=call.control.bootstrap_lab.run)


async def cancel_bootstrap(call: Call) -> Answer:
    """Ends the race that is going on."""
    try:
        run = call.control.bootstrap_lab.cancel()
    except OperationError as error:
        await _audit(call, "cancel bootstrap race", AuditResult.REFUSED, str(error))
        raise
    await _audit(call, "cancel bootstrap race", AuditResult.ACCEPTED, None)
    return Answer(BootstrapAnswer(run=run), 202)


async def _audit(call: Call, action: str, result: AuditResult, detail: str | None) -> None:
    entry = AuditEntry(call.actor, action, "bootstrap race", result, detail=detail)
    await call.control.database.write(lambda c: record(c, call.control.settings.cluster_id, entry))
