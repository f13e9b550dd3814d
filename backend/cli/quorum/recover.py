"""`ebbline quorum recover`: the way out when a majority of the voters has lost its metadata for good. Files only."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend.cli.local import audited
from backend.cli.local.local_settings import DatabaseOptions, identity_of, refuse
from backend.cli.plans.confirm import asked_reason, typed
from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import JsonOption, console, fail, show_json, with_options
from backend.cli.shared.tables import table
from backend.cli.shared.value_text import age, moment, plural, printable_text

if TYPE_CHECKING:
    from backend.data_folder.data_folder import ClusterIdentity, DataFolder
    from backend.settings.settings import Settings
    from backend.supervisor.recovery.metadata_copies import MetadataCopy
    from backend.supervisor.recovery.quorum_recovery import LocalReplica, Recovery

ACTION = "recover quorum"
LEDGER = "quorum-recover.log"
# So many folders are named one by one; --json names all.
STRAYS_SHOWN = 20


@with_options
def recover(
    options: DatabaseOptions,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown, or asked for.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why; stands in the audit.")] = None,
    json_: JsonOption = False,
) -> None:
    """Go on from the best metadata that is left, when most voters' disks are gone for good. The cluster is stopped.

    Shows first what is lost. Without --yes and without a terminal nothing is changed.
    """
    from backend.data_folder.data_folder import DataFolder, DataFolderError
    from backend.runtime.private_files import keep_files_private
    from backend.supervisor.recovery.quorum_recovery import RecoveryRefused
    from backend.supervisor.recovery.quorum_rewrite import rewrite

    if yes and not (reason or "").strip():
        fail("Give a --reason with --yes: it stands in the audit.", Exit.USAGE)
    keep_files_private()
    settings = options.settings()
    folder = DataFolder(settings.data_dir)
    now_ms = int(time.time() * 1000)
    try:
        identity = identity_of(settings)
        plan = _planned(folder, identity)
        if json_:
            show_json(_document(plan))
        else:
            _show(plan, now_ms)
        if not yes and (json_ or not sys.stdin.isatty()):
            print("Nothing has been changed: confirm with --yes and --reason.", file=sys.stderr)
            return
        if not yes:
            typed(identity.cluster_name)
        why = reason or asked_reason()
        _note(folder, plan, why, now_ms)
        kept = rewrite(plan, folder, now_ms)
    except RecoveryRefused as error:
        fail(f"{error} Nothing was changed.", Exit.REFUSED)
    except DataFolderError as error:
        refuse(error)
    except OSError as error:
        fail(
            f"The quorum was not recovered: {error}. Nothing is deleted; mend that, and run this command again.",
            Exit.FAILED,
        )
    _audit(settings, identity, plan, why)
    for path in kept:
        print(f"Kept: {path}", file=sys.stderr)
    print("The voters have the metadata that was left: start `ebbline up`.", file=sys.stderr)


def _planned(folder: DataFolder, identity: ClusterIdentity) -> Recovery:
    """The plan, with the folder held until this process ends. DataFolderError, RecoveryRefused, OSError."""
    from backend.supervisor.recovery.broker_folders import RECOVERING_FILE, misplaced, read_broker_folders
    from backend.supervisor.recovery.metadata_copies import read_copies
    from backend.supervisor.recovery.quorum_recovery import RecoveryRefused, plan_recovery, read_local_replicas
    from backend.supervisor.recovery.quorum_rewrite import refuse_while_in_use

    if not identity.brokers:
        raise RecoveryRefused(
            f"The folder {folder.root} belongs to an attached cluster: the metadata are that cluster's."
        )
    folder.lock()
    refuse_while_in_use(folder, identity.brokers)
    swapped = misplaced(read_broker_folders(folder, identity))
    if swapped is not None:
        raise RecoveryRefused(swapped)
    interrupted = (folder.quorum / RECOVERING_FILE).exists()
    return plan_recovery(read_copies(folder, identity), read_local_replicas(folder, identity), interrupted=interrupted)


def _show(plan: Recovery, now_ms: int) -> None:
    rows = [
        (
            str(copy.node_id),
            "voter" if copy.votes else "observer",
            _condition(copy),
            str(copy.end.offset),
            str(copy.end.epoch),
            moment(copy.last_record_ms or None),
        )
        for copy in plan.copies
    ]
    headings = ("node", "role", "metadata", "log end", "epoch", "last record")
    console().print(table(headings, rows, right=("log end", "epoch")))
    image, best = plan.image, plan.best
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    lines = [
        f"All {plural(len(plan.voters), 'voter')} get the metadata of node {best.node_id}, of epoch {best.end.epoch} up"
        f" to offset {best.end.offset}; its last record is {age(best.last_record_ms or None, now_ms)} old.",
        f"It knows {plural(len(image.brokers), 'broker')}, {plural(len(image.topics), 'topic')} and"
        f" {plural(partitions, 'partition')}.",
        "Lost: whatever the quorum agreed on after that record: topics, settings, credentials, and which replicas were"
        " in sync. A partition whose replicas in sync it does not name rightly may lose its newest records.",
    ]
    if plan.is_older:
        lines.append(
            f"It is not the newest: changes up to offset {plan.newest_offset} were in use, and"
            f" {plural(len(plan.surpassed), 'partition')} had later leaders than it knows. Of each partition the best"
            " log of those that it takes to be in sync leads then."
        )
    if plan.strays:
        lines.append(
            f"{plural(len(plan.strays), 'replica folder')} it does not know; they are set aside as strays and kept:"
        )
        lines += [f"  {replica.path}" for replica in plan.strays[:STRAYS_SHOWN]]
        lines += [f"  and {len(plan.strays) - STRAYS_SHOWN} more"] if len(plan.strays) > STRAYS_SHOWN else []
    lines.append("Nothing is deleted: folders that are replaced are renamed to __cluster_metadata-0.<time>.replaced.")
    print("\n".join(printable_text(line) for line in lines))


def _condition(copy: MetadataCopy) -> str:
    if copy.unreadable is not None:
        return printable_text(copy.unreadable)
    if copy.lost is not None:
        return printable_text(copy.lost)
    return "whole" if copy.end.offset else "is empty"


def _document(plan: Recovery) -> dict[str, Any]:
    return {
        "from_node": plan.best.node_id,
        "new_epoch": plan.epoch,
        "brokers": len(plan.image.brokers),
        "topics": sorted(topic.name for topic in plan.image.topics.values()),
        "copies": [
            {
                "node_id": copy.node_id,
                "role": "voter" if copy.votes else "observer",
                "metadata": _condition(copy),
                "log_end_offset": copy.end.offset,
                "epoch": copy.end.epoch,
                "last_record_ms": copy.last_record_ms or None,
            }
            for copy in plan.copies
        ],
        "is_older": plan.is_older,
        "strays": [_stray(replica) for replica in plan.strays],
        "partitions_with_later_leaders": [f"{tip.topic}-{tip.partition}" for tip in plan.surpassed],
    }


def _stray(replica: LocalReplica) -> dict[str, Any]:
    from backend.tiering.ids import uuid_text

    return {"broker_id": replica.node_id, "path": str(replica.path), "topic_id": uuid_text(replica.tip.topic_id)}


def _note(folder: DataFolder, plan: Recovery, reason: str, now_ms: int) -> None:
    """In the folder itself, before the change: the database may be lost with the disks. OSError."""
    line = {"at_ms": now_ms, "actor": audited.account(), "action": ACTION, "reason": reason, "plan": _document(plan)}
    with (folder.logs / LEDGER).open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _audit(settings: Settings, identity: ClusterIdentity, plan: Recovery, reason: str) -> None:
    """In the audit where there is a database; the change is made, so a failure is only printed."""
    end = plan.best.end
    detail = f"from node {plan.best.node_id}, epoch {end.epoch}, offset {end.offset}; {len(plan.strays)} strays"
    row = audited.entry(ACTION, identity.cluster_name, detail=detail, reason=reason)
    why = audited.store(settings, identity.cluster_id, row)
    if why is not None:
        print(printable_text(f"It is not in the audit, only in logs/{LEDGER} of the folder: {why}"), file=sys.stderr)
