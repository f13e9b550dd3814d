"""`ebbline quorum describe|upgrade`: who leads the metadata, and how far the others are; they ask a broker, as any
client does. `recover` works on the folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from backend.cli.local import audited
from backend.cli.local.local_settings import identity_of, settings_beside_up
from backend.cli.quorum.recover import recover
from backend.cli.shared.api_session import Exit
from backend.cli.shared.broker_connection import BrokerOptions, BrokerReportOptions
from backend.cli.shared.options import console, fail, show_json, with_options
from backend.cli.shared.tables import table
from backend.cli.shared.value_text import age, printable_text
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS

if TYPE_CHECKING:
    from backend.control.gateway.kafka_client import Gateway
    from backend.control.gateway.requests.feature_requests import FeatureLevel
    from backend.control.gateway.requests.quorum_requests import QuorumInfo, QuorumReplicaState

quorum_app = typer.Typer(help="The quorum that keeps the cluster's metadata.", no_args_is_help=True)


@quorum_app.callback()
def quorum() -> None:
    """Options of every command."""


@quorum_app.command()
@with_options
def describe(options: BrokerReportOptions) -> None:
    """Leader, epoch, voters and observers with their lag, and the cluster's feature levels."""
    # The client is imported where it is used: every command of `ebbline` would wait for it.
    import asyncio

    from backend.control.gateway.gateway_errors import GatewayError
    from backend.protocol.errors import KafkaError

    try:
        info, features = asyncio.run(_fetched(options.gateway()))
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except (GatewayError, KafkaError) as error:
        fail(f"The quorum cannot be described: {error}", Exit.AWAY)
    if info is None:
        fail("The quorum has no leader at the moment, or the cluster does not tell: try again.", Exit.ATTENTION)
    if options.json_:
        show_json(_document(info, features))
        return
    now_ms = int(time.time() * 1000)
    print(f"Leader {info.leader_id} in epoch {info.leader_epoch}; committed up to offset {info.high_watermark}")
    rows = [
        (
            str(replica.node_id),
            "leader" if replica.node_id == info.leader_id else _role(replica),
            str(replica.log_end_offset) if replica.log_end_offset >= 0 else "unknown",
            str(info.lag(replica)) if replica.log_end_offset >= 0 else "unknown",
            age(replica.last_caught_up_ms, now_ms) if replica.last_caught_up_ms >= 0 else "never",
            replica.directory_id or "unknown",
        )
        for replica in info.replicas
    ]
    console().print(table(("node", "role", "log end", "lag", "caught up", "directory"), rows, right=("log end", "lag")))
    for replica in info.replicas:
        if not replica.counted:
            print(
                f"Voter {replica.node_id} has lost its copy and is not counted for a majority until it has caught up."
            )
    feature_rows = [(name, str(feature.level), str(feature.max_level)) for name, feature in features.items()]
    console().print(table(("feature", "level", "highest"), feature_rows, right=("level", "highest")))


@quorum_app.command()
@with_options
def upgrade(options: BrokerOptions) -> None:
    """Switch eligible leader replicas on (KIP-966): one disk may be lost. Older programs refuse the folder then."""
    import asyncio

    from backend.control.gateway.gateway_errors import GatewayError
    from backend.protocol.errors import KafkaError

    try:
        former = asyncio.run(_upgraded(options.gateway()))
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except (GatewayError, KafkaError) as error:
        fail(f"The level was not raised: {error}", Exit.AWAY)
    if former >= 1:
        print(f"{ELIGIBLE_LEADER_REPLICAS} is at level {former} already.")
        return
    print(f"{ELIGIBLE_LEADER_REPLICAS} is at level 1 now.")
    why = "no data folder was named" if options.bootstrap_server else _audit_upgrade(options.data)
    if why is not None:
        print(printable_text(f"It is not in the audit: {why}"), file=sys.stderr)


def _audit_upgrade(data: Path) -> str | None:
    """In the audit of the data folder; why not, where it cannot be written: the level is raised all the same."""
    settings = settings_beside_up(data_dir=data)
    cluster_id = identity_of(settings).cluster_id
    return audited.store(
        settings, cluster_id, audited.entry("upgrade feature", ELIGIBLE_LEADER_REPLICAS, detail="to level 1")
    )


quorum_app.command()(recover)


def _role(replica: QuorumReplicaState) -> str:
    return replica.role if replica.counted else f"{replica.role}, catching up"


async def _upgraded(gateway: Gateway) -> int:
    """The level that the cluster had before."""
    from backend.control.gateway.requests.feature_requests import fetch_features, raise_feature

    try:
        feature = (await fetch_features(gateway)).get(ELIGIBLE_LEADER_REPLICAS)
        level = 0 if feature is None else feature.level
        if level < 1:
            await raise_feature(gateway, ELIGIBLE_LEADER_REPLICAS, 1)
    finally:
        await gateway.close()
    return level


async def _fetched(gateway: Gateway) -> tuple[QuorumInfo | None, Mapping[str, FeatureLevel]]:
    from backend.control.gateway.requests.feature_requests import fetch_features
    from backend.control.gateway.requests.quorum_requests import fetch_quorum

    try:
        return await fetch_quorum(gateway), await fetch_features(gateway)
    finally:
        await gateway.close()


def _document(info: QuorumInfo, features: Mapping[str, FeatureLevel]) -> dict[str, Any]:
    return {
        "features": {
            name: {"level": feature.level, "max_level": feature.max_level} for name, feature in features.items()
        },
        "leader_id": info.leader_id,
        "leader_epoch": info.leader_epoch,
        "high_watermark": info.high_watermark,
        "replicas": [
            {
                "node_id": replica.node_id,
                "role": replica.role,
                "log_end_offset": replica.log_end_offset,
                "lag": info.lag(replica),
                "last_fetch_ms": replica.last_fetch_ms,
                "last_caught_up_ms": replica.last_caught_up_ms,
                "directory_id": replica.directory_id,
                "counted": replica.counted,
            }
            for replica in info.replicas
        ],
    }
