"""Handlers of the lab: experiments on the embedded cluster. The audit names the user who began each."""

from __future__ import annotations

from backend.control.deferred_audit import DeferredAudit
from backend.control.formatting import in_bytes
from backend.control.http.api_models import BootstrapAnswer, BootstrapBody, FaultBody, FaultsAnswer
from backend.control.http.call import Call, HandlerResult
from backend.control.lab.bootstrap.bootstrap_lab import BootstrapLab
from backend.control.lab.faults.fault_lab import FaultLab
from backend.control.lab.faults.fault_scripts import TAKES_BROKER
from backend.control.lab.faults.scenarios import SCENARIOS
from backend.control.operations.audit_entries import AuditEntry, AuditResult, append_entry
from backend.control.operations.operation_errors import OperationError


class LabHandlers:
    """The lab of the embedded cluster; each call is audited, also while the database is away."""

    def __init__(self, bootstrap_lab: BootstrapLab, fault_lab: FaultLab, audit: DeferredAudit, cluster_id: str) -> None:
        self._bootstrap_lab = bootstrap_lab
        self._fault_lab = fault_lab
        self._deferred_audit = audit
        self._cluster_id = cluster_id

    async def start_bootstrap(self, call: Call) -> HandlerResult:
        """Begins a race; 202 with the run, whose progress `get_bootstrap` gives."""
        body: BootstrapBody = call.body
        inputs = f"{in_bytes(body.size_bytes)}, {body.tiered_percent} % tiered"
        try:
            run = await self._bootstrap_lab.start(body.size_bytes, body.tiered_percent)
        except OperationError as error:
            await self._audit(call, "start bootstrap race", AuditResult.REFUSED, str(error))
            raise
        await self._audit(call, "start bootstrap race", AuditResult.ACCEPTED, inputs)
        return HandlerResult(BootstrapAnswer(run=run), 202)

    async def get_bootstrap(self, call: Call) -> BootstrapAnswer:
        """The race as it is now."""
        return BootstrapAnswer(run=self._bootstrap_lab.run)

    async def cancel_bootstrap(self, call: Call) -> HandlerResult:
        """Ends the race that is going on."""
        try:
            run = self._bootstrap_lab.cancel()
        except OperationError as error:
            await self._audit(call, "cancel bootstrap race", AuditResult.REFUSED, str(error))
            raise
        await self._audit(call, "cancel bootstrap race", AuditResult.ACCEPTED, None)
        return HandlerResult(BootstrapAnswer(run=run), 202)

    async def get_faults(self, call: Call) -> FaultsAnswer:
        """Faults that can be injected, and the one that is."""
        lab = self._fault_lab
        return FaultsAnswer(
            scenarios=list(SCENARIOS),
            refusal=lab.refusal,
            brokers=lab.killable,
            takes_broker=sorted(TAKES_BROKER),
            run=lab.run,
        )

    async def inject(self, call: Call) -> HandlerResult:
        """Begins a scenario; 202, `get_faults` gives its progress."""
        body: FaultBody = call.body
        inputs = body.scenario if body.broker is None else f"{body.scenario} on broker {body.broker}"
        try:
            self._fault_lab.inject(body.scenario, body.broker, call.actor.name)
        except OperationError as error:
            await self._audit(call, "break", AuditResult.REFUSED, f"{inputs}: {error}", "lab scenario")
            raise
        await self._audit(call, "break", AuditResult.ACCEPTED, inputs, "lab scenario")
        return HandlerResult(await self.get_faults(call), 202)

    async def clear(self, call: Call) -> HandlerResult:
        """Clears the fault that the lab has injected."""
        try:
            run = self._fault_lab.clear()
        except OperationError as error:
            await self._audit(call, "heal", AuditResult.REFUSED, str(error), "lab scenario")
            raise
        await self._audit(call, "heal", AuditResult.ACCEPTED, run.slug, "lab scenario")
        return HandlerResult(await self.get_faults(call), 202)

    async def _audit(
        self, call: Call, action: str, result: AuditResult, detail: str | None, what: str = "bootstrap race"
    ) -> None:
        entry = AuditEntry(call.actor, action, what, result, detail=detail)
        await self._deferred_audit.write(lambda c: append_entry(c, self._cluster_id, entry))
