"""Gives every voter the metadata that is left, under a new directory id. Nothing is deleted: what was there is renamed.

All copies are made before the first is put in its place. A note says that this has begun until it has ended: voters of
which only some were replaced are not one quorum, so `ebbline up` refuses then, and the command goes on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from immutables import Map

from backend.data_folder.data_folder import DataFolder
from backend.engine.config import BrokerConfig
from backend.engine.log.file_names import LEADER_EPOCH_FILE, LOCK_FILE, LOG_SUFFIX, PARTITION_METADATA_FILE
from backend.engine.log.log_errors import CorruptLog
from backend.engine.ports import Ports, system_ports
from backend.engine.ports.disk import OsDisk
from backend.engine.raft.metadata_log_opening import open_metadata_log
from backend.engine.raft.quorum_state import NOBODY, QuorumState, VoterStanding
from backend.supervisor.recovery.broker_folders import RECOVERING_FILE, SNAPSHOT_SUFFIX
from backend.supervisor.recovery.metadata_copies import METADATA_FOLDER
from backend.supervisor.recovery.quorum_recovery import Recovery, RecoveryRefused, records_to_append

# In the log directory, so that putting a copy in its place is one rename. No name of a partition's folder.
STAGE: Final = "quorum-recover.part"
COPIED_SUFFIXES: Final = (LOG_SUFFIX, SNAPSHOT_SUFFIX)
COPIED_FILES: Final = (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE)


def refuse_while_in_use(folder: DataFolder, brokers: int) -> None:
    """RecoveryRefused while a broker has its log directory open, with or without `ebbline up`."""
    disk = OsDisk()
    for node_id in range(1, brokers + 1):
        path = folder.broker_log_dir(node_id)
        if not path.is_dir():
            continue
        try:
            disk.lock(str(path / LOCK_FILE)).close()
        except BlockingIOError:
            raise RecoveryRefused(f"A broker is using {path}: stop the whole cluster first.") from None


def rewrite(plan: Recovery, folder: DataFolder, now_ms: int) -> list[Path]:
    """Carries the plan out; where the replaced folders are kept. RecoveryRefused, OSError."""
    staging_folders = {voter: folder.broker_log_dir(voter) / STAGE for voter in plan.voters}
    try:
        asyncio.run(_make_all(plan, staging_folders, now_ms))
    except CorruptLog as error:
        _remove(staging_folders)
        raise RecoveryRefused(f"The copy of node {plan.best.node_id} cannot be gone on from: {error}.") from error
    except (OSError, RecoveryRefused):
        _remove(staging_folders)
        raise
    folder.quorum.mkdir(exist_ok=True)
    note = folder.quorum / RECOVERING_FILE
    note.touch()
    _sync(folder.quorum)
    kept = [aside for staging in staging_folders.values() if (aside := _put_in_place(staging, now_ms)) is not None]
    note.unlink()
    _sync(folder.quorum)
    return kept


async def _make_all(plan: Recovery, staging_folders: Mapping[int, Path], now_ms: int) -> None:
    ports = system_ports()
    directories = Map({voter: ports.random.uuid() for voter in plan.voters})
    try:
        for voter, staging in staging_folders.items():
            await _make(ports, plan, voter, staging, directories, now_ms)
    finally:
        ports.workers.close()


async def _make(
    ports: Ports, plan: Recovery, voter: int, staging: Path, directories: Map[int, bytes], now_ms: int
) -> None:
    """One voter's folder. All get the same log, byte for byte."""
    _copy_log(plan.best.path, staging)
    config = BrokerConfig.parse({"node.id": str(voter), "log.dirs": str(staging)})
    log = await open_metadata_log(ports, config)
    if log.end != plan.best.end:
        log.abandon()
        raise RecoveryRefused(
            f"The copy of node {plan.best.node_id} was read up to offset {plan.best.end.offset} and opens up to"
            f" {log.end.offset}: look at its disk, and put a newer copy back from a disk or a backup."
        )
    log.append_leader_change(plan.best.node_id, plan.epoch, plan.voters, plan.voters, now_ms)
    log.append_voters(directories, plan.epoch, now_ms)
    log.append(records_to_append(plan), plan.epoch, now_ms)
    await log.flush()
    state = QuorumState(NOBODY, plan.epoch, NOBODY, plan.voters, directories[voter], VoterStanding.MEMBER)
    await log.write_state(state)
    log.close()


def _copy_log(source: Path, staging: Path) -> None:
    """The log and its snapshots; what is made again by itself, and what its node had promised, stays behind."""
    staging.parent.mkdir(parents=True, exist_ok=True)
    if staging.exists():
        shutil.rmtree(staging)  # of a run of this command that did not end
    target = staging / METADATA_FOLDER
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix in COPIED_SUFFIXES or file.name in COPIED_FILES:
            shutil.copyfile(file, target / file.name)
            _sync(target / file.name)
    _sync(target)


def _put_in_place(staging: Path, now_ms: int) -> Path | None:
    """Where the folder that was there is kept; None when there was none."""
    place, aside = staging.parent / METADATA_FOLDER, staging.parent / f"{METADATA_FOLDER}.{now_ms}.replaced"
    replaced = place.exists()
    if replaced:
        place.rename(aside)
    (staging / METADATA_FOLDER).rename(place)
    staging.rmdir()
    _sync(staging.parent)
    return aside if replaced else None


def _remove(staging_folders: Mapping[int, Path]) -> None:
    for staging in staging_folders.values():
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    """A file's content, or the names in a folder, are on the device."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
