"""`ebbline set-aside`: unused replica folders that brokers keep. Asks the brokers, no more."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from backend.cli.shared.api_session import Exit
from backend.cli.shared.broker_connection import BrokerReportOptions
from backend.cli.shared.options import console, fail, show_json, with_options
from backend.cli.shared.tables import table
from backend.cli.shared.value_text import age

if TYPE_CHECKING:
    from backend.control.gateway.kafka_client import Gateway
    from backend.control.gateway.requests.log_dir_requests import SetAsideReplica


@with_options
def set_aside(options: BrokerReportOptions) -> None:
    """Replica folders that are kept: strays and damaged ones, with size and age. A plan removes them, nothing else."""
    # The client is imported where it is used: every command of `ebbline` would wait for it.
    import asyncio

    from backend.control.formatting import in_bytes
    from backend.control.gateway.gateway_errors import GatewayError
    from backend.protocol.errors import KafkaError

    try:
        replicas = asyncio.run(_set_aside_replicas(options.gateway()))
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except (GatewayError, KafkaError) as error:
        fail(f"The log directories cannot be described: {error}", Exit.AWAY)
    if options.json_:
        show_json([{"broker_id": broker, "path": path, **asdict(replica)} for broker, path, replica in replicas])
        return
    if not replicas:
        print("No broker keeps a replica folder that nobody uses.")
        return
    now_ms = int(time.time() * 1000)
    rows = [
        (str(broker), f"{path}/{kept.name}", in_bytes(kept.size_bytes), age(kept.since_ms, now_ms), kept.reason)
        for broker, path, kept in replicas
    ]
    console().print(table(("broker", "folder", "size", "age", "why"), rows, right=("size",)))
    print("To remove: ebbline plan brokers --broker N ebbline.remove.set.aside=NAME,…")


async def _set_aside_replicas(gateway: Gateway) -> list[tuple[int, str, SetAsideReplica]]:
    from backend.control.gateway.requests.log_dir_requests import describe_log_dirs
    from backend.control.gateway.requests.metadata_requests import fetch_cluster

    try:
        await fetch_cluster(gateway)
        replicas = []
        for broker_id in sorted(gateway.brokers):
            disk = await describe_log_dirs(gateway, broker_id, only=None)
            replicas += [(broker_id, log_dir.path, kept) for log_dir in disk.log_dirs for kept in log_dir.set_aside]
        return replicas
    finally:
        await gateway.close()
