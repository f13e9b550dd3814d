"""The content of a data folder's ``cluster.json``, taken from the brokers' files, for a folder that has lost it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity

DEFAULT_NAME: Final = "demo"
_BROKER_PORT, _CONTROLLER_PORT = 19092, 19192


def way_out(root: Path) -> str:
    """The remedy for a `cluster.json` below `root` that is gone or cannot be read: one sentence, never one that could
    give the folder to a cluster of another shape.
    """
    identity = identity_of_brokers(root)
    if identity is None:
        return "restore it from a copy, or choose another folder with --data."
    line = json.dumps(asdict(identity))
    return f"restore it from a copy, or make it again with this line: {line} (with your own name of the cluster)."


def identity_of_brokers(root: Path) -> ClusterIdentity | None:
    """The identity that all brokers of the folder agree on; None when they do not tell it whole.

    Kafka: `meta.properties` of each broker has the cluster's id, `quorum-state` of its metadata log the voters.
    """
    folders = sorted(path for path in (root / "brokers").glob("*/log") if path.parent.name.isdecimal())
    numbers = sorted(int(path.parent.name) for path in folders)
    cluster_ids = {_cluster_id(path / "meta.properties") for path in folders}
    voters = {_voters(path / "__cluster_metadata-0" / "quorum-state") for path in folders} - {None}
    if not folders or numbers != list(range(1, len(numbers) + 1)) or len(cluster_ids) != 1 or len(voters) != 1:
        return None
    (cluster_id,), (count,) = cluster_ids, voters
    if cluster_id is None or count is None:
        return None
    return ClusterIdentity(
        FORMAT_VERSION, cluster_id, DEFAULT_NAME, len(numbers), _BROKER_PORT, _CONTROLLER_PORT, count
    )


def _cluster_id(path: Path) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), None)


def _voters(path: Path) -> int | None:
    """How many voters the node knew; None where it does not say."""
    try:
        ids = {int(voter["voterId"]) for voter in json.loads(path.read_text())["currentVoters"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return len(ids) if ids and ids == set(range(1, len(ids) + 1)) else None
