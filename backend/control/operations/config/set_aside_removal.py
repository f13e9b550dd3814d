"""Removing set-aside replica folders by `ebbline.remove.set.aside`: what is checked before, said, and seen after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from backend.control.formatting import in_bytes
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.log_dir_requests import SetAsideReplica, describe_log_dirs
from backend.control.operations.lifecycle.plan_draft import CheckOutcome, DialogTexts, PlanCheck
from backend.runtime.redact import printable

SETTING: Final = "ebbline.remove.set.aside"
# Folders that a sentence names.
_NAMED_MAX: Final = 5


def removed_folders(settings: Mapping[str, str | None]) -> tuple[str, ...]:
    """The folders that the change removes; none when it is about something else."""
    return tuple(name.strip() for name in (settings.get(SETTING) or "").split(",") if name.strip())


async def kept_by(gateway: Gateway, broker_id: int) -> list[SetAsideReplica]:
    """Folders that the broker keeps in all its log directories, asked of it. Raises GatewayError, KafkaError."""
    disk = await describe_log_dirs(gateway, broker_id, lane=Lane.ACT)
    return [replica for directory in disk.log_dirs for replica in directory.set_aside]


def check(names: Sequence[str], broker_id: int, kept: Iterable[SetAsideReplica]) -> PlanCheck:
    """Refused when the broker has none of them, a warning when some are missing."""
    there = {replica.name for replica in kept}
    missing = [name for name in names if name not in there]
    if not missing:
        return PlanCheck("set-aside", CheckOutcome.OK, f"Broker {broker_id} keeps what is named, and nobody uses it.")
    outcome = CheckOutcome.REFUSED if len(missing) == len(names) else CheckOutcome.WARNING
    text = f"Broker {broker_id} keeps no folder {_listed(missing)}: ebbline set-aside lists what there is."
    return PlanCheck("set-aside", outcome, text)


def dialog_texts(
    cluster_name: str, broker_id: int, names: Sequence[str], kept: Iterable[SetAsideReplica]
) -> DialogTexts:
    """The dialog's texts."""
    going = [replica for replica in kept if replica.name in names]
    size = in_bytes(sum(replica.size_bytes for replica in going))
    folders = "folder" if len(going) == 1 else "folders"
    why = "; ".join(printable(f"{replica.name}: {replica.reason}") for replica in going[:_NAMED_MAX])
    more = f"; {len(going) - _NAMED_MAX} more" if len(going) > _NAMED_MAX else ""
    return DialogTexts(
        title=f"Remove {len(going)} set-aside {folders} of broker {broker_id}",
        intro=f"Cluster {cluster_name}.",
        effect=f"Deletes {len(going)} {folders}, {size}. {why}{more}.",
        risk="It may be the only copy of its records. This cannot be reverted.",
        does_not_change="Replicas that are in use.",
        keep="Keep",
        act="Delete for good",
    )


def left(names: Sequence[str], kept: Iterable[SetAsideReplica]) -> str | None:
    """Sentence about those that are still there; None: all are deleted."""
    still = [replica.name for replica in kept if replica.name in names]
    return f"Not deleted yet: {_listed(still)}; the broker's log says why." if still else None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return printable(", ".join(names[:_NAMED_MAX])) + more
