"""Handlers of receivers and of the rules' settings: what is in force, and a test message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.control.alerts.alert_delivery import AlertDelivery
from backend.control.alerts.alerts_file import AlertsFileError
from backend.control.alerts.rule_edits import RuleEdit
from backend.control.alerts.senders.send_result import SendOutcome
from backend.control.deferred_audit import DeferredAudit
from backend.control.findings.catalogue import SLUGS
from backend.control.findings.holds import holds_in_force
from backend.control.findings.thresholds import THRESHOLDS, RuleSettings, in_force
from backend.control.http.alert_models import (
    HoldAnswer,
    ReceiverPath,
    ReceiversAnswer,
    ReceiverTestAnswer,
    RuleBody,
    RulePath,
    RuleSettingAnswer,
    RuleSettingsAnswer,
    ThresholdAnswer,
)
from backend.control.http.call import Call
from backend.control.http.problems import Problem
from backend.control.http.rule_catalogue import rule_answers
from backend.control.operations.audit_entries import AuditEntry, AuditResult, append_entry


class AlertHandlers:
    """Receivers of one cluster."""

    def __init__(self, alerts: AlertDelivery, audit: DeferredAudit, cluster_id: str) -> None:
        self._alerts = alerts
        self._deferred_audit = audit
        self._cluster_id = cluster_id

    async def receivers(self, call: Call) -> ReceiversAnswer:
        """The receivers with what waits for each, and the mistake of the file, if it has one."""
        del call
        files = self._alerts.files
        return ReceiversAnswer(
            file=str(files.files.path) if files.there else None,
            mistake=files.mistake,
            loaded_ms=files.loaded_ms,
            items=self._alerts.statuses,
        )

    async def test(self, call: Call) -> ReceiverTestAnswer:
        """Sends a test message to a receiver and waits for its end, 30 s at most."""
        path: ReceiverPath = call.path
        result = await self._alerts.test(path.receiver)
        if result is None:
            raise Problem(404, "not-found", f"There is no receiver {path.receiver}; /v1/alerts/receivers lists them.")
        taken = result.outcome is SendOutcome.TAKEN
        entry = AuditEntry(
            call.actor,
            "test receiver",
            path.receiver,
            AuditResult.VERIFIED if taken else AuditResult.FAILED,
            detail=result.reason,
        )
        await self._deferred_audit.write(lambda c: append_entry(c, self._cluster_id, entry))
        return ReceiverTestAnswer(receiver=path.receiver, taken=taken, reason=result.reason)

    async def change_rule(self, call: Call) -> RuleSettingsAnswer:
        """Writes a rule's settings into the alerts file; refused when the file has or would have a mistake."""
        path: RulePath = call.path
        body: RuleBody = call.body
        if path.slug not in SLUGS:
            raise Problem(404, "not-found", f"There is no rule {path.slug}; docs/findings.md lists them.")
        before = _values(self._alerts.rules, path.slug, body.topics)
        try:
            await self._alerts.change_rule(RuleEdit(path.slug, body.topics, body.values))
        except AlertsFileError as error:
            await self._note(call, path.slug, body, before, AuditResult.REFUSED, str(error))
            raise Problem(409, "rule-refused", f"{error} Nothing was changed.") from error
        await self._note(call, path.slug, body, before, AuditResult.VERIFIED, None)
        return await self.rules(call)

    async def _note(
        self,
        call: Call,
        slug: str,
        body: RuleBody,
        before: Mapping[str, str],
        result: AuditResult,
        detail: str | None,
    ) -> None:
        changes = [
            {"object": slug, "name": name, "before": before.get(name), "after": _shown(name, value)}
            for name, value in body.values.items()
        ]
        about = f"{slug} ({body.topics})" if body.topics else slug
        entry = AuditEntry(
            call.actor, "change rule", about, result, diff={"changes": changes}, reason=body.reason, detail=detail
        )
        await self._deferred_audit.write(lambda c: append_entry(c, self._cluster_id, entry))

    async def rules(self, call: Call) -> RuleSettingsAnswer:
        """Thresholds with their defaults and reasons, and the rules that the file sets."""
        del call
        settings = self._alerts.rules
        return RuleSettingsAnswer(
            thresholds=[
                ThresholdAnswer(
                    slug=item.entry.slug,
                    name=item.entry.name,
                    value=item.value,
                    default=item.entry.default,
                    unit=item.entry.unit,
                    topics=item.topics,
                    reason=item.entry.reason,
                )
                for item in in_force(settings)
            ],
            holds=[
                HoldAnswer(
                    slug=hold.slug,
                    case=hold.case or None,
                    for_s=for_ms / 1000,
                    default_s=hold.for_ms / 1000,
                    reason=hold.reason,
                )
                for hold, for_ms in holds_in_force(settings)
            ],
            rules=[
                RuleSettingAnswer(
                    slug=setting.slug,
                    topics=setting.topics,
                    for_s=None if setting.for_ms is None else setting.for_ms / 1000,
                    severity=setting.severity,
                    off=setting.off,
                )
                for setting in settings.settings
                if setting.off or setting != replace(setting, for_ms=None, severity=None)
            ],
            catalogue=rule_answers(),
        )


def _values(settings: RuleSettings, slug: str, topics: str | None) -> dict[str, str]:
    """The names that the file sets for a rule and a pattern, as the audit shows them."""
    setting = next((s for s in settings.settings if (s.slug, s.topics) == (slug, topics)), None)
    if setting is None:
        return {}
    names = {entry.field: entry.name for entry in THRESHOLDS if entry.slug == slug}
    values: dict[str, float | str | bool | None] = {
        "for_s": None if setting.for_ms is None else setting.for_ms / 1000,
        "severity": setting.severity,
        "off": setting.off or None,
        **{names[field]: value for field, value in setting.thresholds.items()},
    }
    return {name: _shown(name, value) for name, value in values.items() if value is not None}


def _shown(name: str, value: float | str | bool | None) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return f"{name} = {'default' if value is None else text}"
