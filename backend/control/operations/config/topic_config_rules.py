"""Kafka's rules for the tiering settings of a topic (KIP-405, KIP-950), and what an operator must know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.control.formatting import in_bytes
from backend.control.operations.lifecycle.plan_draft import CheckOutcome, PlanCheck

REMOTE: Final = "remote.storage.enable"
COPY_OFF: Final = "remote.log.copy.disable"
DELETE_ON_OFF: Final = "remote.log.delete.on.disable"
POLICY: Final = "cleanup.policy"
RETENTION: Final = (("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes"))
# Kafka's "as much as the whole retention".
AS_TOTAL: Final = -2
UNLIMITED: Final = -1
ConfigValues = Mapping[str, str | None]


def deletes_remote(settings: ConfigValues) -> bool:
    """Whether the change deletes what is in the remote tier."""
    return settings.get(REMOTE) == "false" and settings.get(DELETE_ON_OFF) == "true"


def check_topic_config(settings: ConfigValues, effective: ConfigValues, remote_bytes: int | None) -> list[PlanCheck]:
    """Checks of the change. `effective`: values in effect before it."""
    after = {**effective, **settings}
    checks = [_compacted(after), *_retention(after), _copy(settings, after), _off(settings, effective, remote_bytes)]
    return [check for check in checks if check is not None]


def _compacted(after: ConfigValues) -> PlanCheck | None:
    if after.get(REMOTE) == "true" and "compact" in (after.get(POLICY) or ""):
        text = "A compacted topic cannot be tiered: choose cleanup.policy=delete."
        return PlanCheck("compacted", CheckOutcome.REFUSED, text)
    return None


def _retention(after: ConfigValues) -> list[PlanCheck]:
    checks = []
    for local_name, total_name in RETENTION:
        local, total = _number(after.get(local_name)), _number(after.get(total_name))
        if local is None or total is None or local == AS_TOTAL:
            continue
        if after.get(REMOTE) == "true" and total != UNLIMITED and (local > total or local == UNLIMITED):
            text = f"{local_name} ({local}) must not be more than {total_name} ({total}): lower it, or -2 for as much."
            checks.append(PlanCheck(local_name, CheckOutcome.REFUSED, text))
    return checks


def _copy(settings: ConfigValues, after: ConfigValues) -> PlanCheck | None:
    if after.get(COPY_OFF) != "true":
        return None
    for local_name, total_name in RETENTION:
        local, total = _number(after.get(local_name)), _number(after.get(total_name))
        if local is not None and local not in (AS_TOTAL, total):
            text = f"While copying is paused {local_name} must be -2 or equal to {total_name}: change it in this plan."
            return PlanCheck("copy-disable", CheckOutcome.REFUSED, text)
    if settings.get(COPY_OFF) == "true":
        text = "New segments stay local until copying is resumed: local disks fill as total retention allows."
        return PlanCheck("copy-disable", CheckOutcome.WARNING, text)
    return None


def _off(settings: ConfigValues, effective: ConfigValues, remote_bytes: int | None) -> PlanCheck | None:
    if settings.get(REMOTE, "") == "true" or REMOTE not in settings or effective.get(REMOTE) != "true":
        return None
    if not deletes_remote(settings):
        text = f"Tiering is turned off only together with {DELETE_ON_OFF}=true, which deletes the remote data; to keep "
        return PlanCheck("remote-data", CheckOutcome.REFUSED, text + f"it, set {COPY_OFF}=true instead.")
    size = "all" if remote_bytes is None else in_bytes(remote_bytes)
    return PlanCheck(
        "remote-data", CheckOutcome.WARNING, f"Deletes {size} of remote data, for good. This cannot be reverted."
    )


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
