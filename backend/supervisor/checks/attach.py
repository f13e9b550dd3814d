"""Before anything is started: does the cluster that is to be watched answer, and which one is it?"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from backend.control.gateway.client_security import Security, SecurityError, read_properties, security_of
from backend.control.gateway.connection_pool import ConnectionPool
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure, parse_bootstrap
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.protocol.errors import KafkaError
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import PreflightError

TIMEOUT_S: Final = 20.0
# It stands in files, in the children's environment and in messages. Kafka makes 22 characters of base64, but keeps what
# older clusters have.
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9._=+/-]{1,100}")


def attached_cluster_id(settings: Settings) -> str:
    """The id of the cluster at `settings.attach`. Raises PreflightError with one sentence."""
    try:
        addresses = parse_bootstrap(settings.attach or "")
        security = None if settings.client_properties is None else _security(settings.client_properties)
        gateway = Gateway(addresses, pool=ConnectionPool(security=security))
        return asyncio.run(_ask(gateway))
    except (GatewayError, KafkaError, ValueError) as error:
        cause = describe_failure(error) if isinstance(error, GatewayError | KafkaError) else str(error)
        raise PreflightError(f"The cluster at {settings.attach} cannot be attached. {cause}") from error
    except TimeoutError as error:
        text = f"The cluster at {settings.attach} did not answer within {TIMEOUT_S:.0f} s: check the address."
        raise PreflightError(text) from error


def _security(file: Path) -> Security:
    """Of properties that the pipeline's client takes as well: else it would end again and again once all else runs."""
    from confluent_kafka import Consumer, KafkaException  # loads long, and few starts have properties

    properties = read_properties(file)
    security = security_of(properties)
    try:
        Consumer({"group.id": "ebbline-unused", "log_level": 0, **properties}).close()
    except KafkaException as error:
        raise SecurityError(f"The client properties {file} cannot be used: {error.args[0].str()}.") from error
    return security


async def _ask(gateway: Gateway) -> str:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            view = await fetch_cluster(gateway)
    finally:
        await gateway.close()
    if not view.cluster_id or not _CLUSTER_ID.fullmatch(view.cluster_id):
        raise SecurityError("It tells no cluster id as Apache Kafka has one.")
    return view.cluster_id
