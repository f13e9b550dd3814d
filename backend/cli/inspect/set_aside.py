"""`ebbline set-aside`: replica folders that brokers keep although nobody uses them. Asks the brokers, no more."""

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
        found = asyncio.run(_found(options.gateway()))
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except (GatewayError, KafkaError) as error:
        fail(f"The log directories cannot be described: {error}", Exit.AWAY)
    if options.json_:
        show_json([{"broker_id": broker, "path": path, **asdict(one)} for broker, path, one in found])
        return
    if not found:
        print("No broker keeps a replica folder that nobody uses.")
        return
    now_ms = int(time.time() * 1000)
    rows = [
        (str(broker), f"{path}/{one.name}", in_bytes(one.size_bytes), age(one.since_ms, now_ms), one.reason)
        for broker, path, one in found
    ]
    console().print(table(("broker", "folder", "size", "age", "why"), rows, right=("size",)))
    print("To remove: ebbline plan brokers --broker N ebbline.remove.set.aside=NAME,…")


async def _found(gateway: Gateway) -> list[tuple[int, str, SetAsideReplica]]:
    from backend.control.gateway.requests.log_dir_requests import describe_log_dirs
    from backend.control.gateway.requests.metadata_requests import fetch_cluster

    try:
        await fetch_cluster(gateway)
        found = []
        for broker_id in sorted(gateway.brokers):
            disk = await describe_log_dirs(gateway, broker_id, only=None)
            found += [(broker_id, one.path, kept) for one in disk.log_dirs for kept in one.set_aside]
        return found
    finally:
        await gateway.close()
