"""The cluster that a node belongs to: by its folder, else its settings; else a controller founds one, others ask it."""

from __future__ import annotations

from typing import Final, cast

from backend.engine.config import BrokerConfig
from backend.engine.config.listener_security import controller_security
from backend.engine.config.listeners import controller_addresses
from backend.engine.controller.registration.broker_lifecycle import no_controller
from backend.engine.log.checkpoint_files import decode_meta_properties
from backend.engine.log.file_names import META_PROPERTIES_FILE
from backend.engine.log.log_errors import LogDirError
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports, tasks
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from backend.tiering.ids import uuid_text

DESCRIBE_CLUSTER_VERSION: Final = 2
CONTROLLERS: Final = 2  # EndpointType of KIP-919
ASK_TIMEOUT_MS: Final = 5000
ASK_PAUSE_MS: Final = 100


async def cluster_id_of(ports: Ports, config: BrokerConfig) -> str:
    """The cluster's id. Raises LogDirError for a folder that cannot be read, KafkaError when no controller answers."""
    path = f"{config.data_dirs[0].rstrip('/')}/{META_PROPERTIES_FILE}"
    try:
        written = decode_meta_properties(ports.disk.read(path), path).cluster_id if ports.disk.exists(path) else None
    except OSError as error:
        raise LogDirError(f"{path} cannot be read ({error.strerror}); fix its permissions") from None
    configured = config.ebbline_cluster_id
    if configured and written and configured != written:
        raise LogDirError(
            f"{config.data_dirs[0]} belongs to cluster {written}, not {configured};"
            " start with that cluster's folder or an empty one"
        )
    if configured or written:
        return configured or written or ""
    if "controller" in (config.process_roles or ()):
        return uuid_text(ports.random.uuid())
    return await _fetch_cluster_id(ports, config)


async def _fetch_cluster_id(ports: Ports, config: BrokerConfig) -> str:
    channel = PeerControllerChannel(
        ports,
        controller_addresses(config),
        client_id=f"broker-{config.id}-cluster-id",
        security=PeerSecurity.of(controller_security(config)),
    )
    deadline_ms = ports.clock.monotonic_ms() + config.initial_broker_registration_timeout_ms
    try:
        while True:
            try:
                response = cast(
                    m.DescribeClusterResponse,
                    await channel.send(
                        m.DescribeClusterRequest(endpoint_type=CONTROLLERS),
                        DESCRIBE_CLUSTER_VERSION,
                        timeout_ms=ASK_TIMEOUT_MS,
                    ),
                )
            except KafkaError as error:
                if ports.clock.monotonic_ms() >= deadline_ms:
                    raise no_controller(config, "to be told its cluster's id", error) from error
                await tasks.sleep_ms(ASK_PAUSE_MS)
                continue
            return response.cluster_id
    finally:
        channel.close()
