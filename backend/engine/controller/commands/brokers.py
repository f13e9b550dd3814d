"""Brokers register, are fenced and unfenced, shut down in order, and are forgotten (KIP-631, KIP-841)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster_start import ClusterStart, leaders_at_start, stays_in_sync_fenced
from backend.engine.controller.commands.command import ControllerResult, check_broker_epoch
from backend.engine.controller.commands.partition.elections import (
    LocatedPartition,
    in_isr,
    in_isr_or_any_elr,
    in_isr_or_elr,
    leader_and_isr_changes,
    leaderless,
    leads_any,
)
from backend.engine.controller.commands.partition.eligible_leader_replicas import elr_enabled
from backend.engine.controller.commands.partition.registered_directories import NO_DIRECTORIES
from backend.engine.controller.image.metadata_image import BrokerRegistration, MetadataImage
from backend.engine.controller.image.replay import FENCE, START_CONTROLLED_SHUTDOWN, UNFENCE
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.tiering.ids import uuid_text

# Directory ids below this number are reserved (Kafka's DirectoryId).
RESERVED_DIRECTORY_IDS = 100


def register_broker(
    image: MetadataImage,
    request: m.BrokerRegistrationRequest,
    config: BrokerConfig,
    *,
    next_offset: int,
    session_alive: bool,
    start: ClusterStart | None = None,
) -> ControllerResult[m.BrokerRegistrationResponse]:
    """A new life of a broker, fenced at first; its epoch is the offset the log has reached.

    `session_alive`: the broker registered under this id has sent heartbeats within its session. `start`: the whole
    cluster is starting.
    """
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    incarnation = bytes(request.incarnation_id)
    same_life = existing is not None and existing.incarnation_id == incarnation
    if existing and session_alive and not same_life and not existing.in_controlled_shutdown:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should"
            " self-resolve once the heartbeat manager expires the broker's session.",
        )
    _check_directories(image, request)
    _check_features(image, request)
    records: list[Message] = []
    epoch = next_offset
    if existing and same_life:
        epoch = existing.epoch
    elif existing:
        records += _end_of_life(image, config, existing, request, start)
    if existing and same_life:
        without = _without_directory(image, existing.id, request)
        records += leader_and_isr_changes(image, config, without, unclean=existing.id)
    records.append(_registration(request, epoch, existing if same_life else None))
    return ControllerResult(tuple(records), m.BrokerRegistrationResponse(broker_epoch=epoch))


def _end_of_life(
    image: MetadataImage,
    config: BrokerConfig,
    ended: BrokerRegistration,
    request: m.BrokerRegistrationRequest,
    start: ClusterStart | None,
) -> list[m.PartitionChangeRecord]:
    """A new registration leaves every ISR that the broker's former one was in.

    After a clean shutdown its logs are whole, and it may be eligible; else records that were not flushed may be missing
    (handleBrokerShutdown). The same where the directory of a log has not come back.
    """
    clean = request.previous_broker_epoch == ended.epoch
    if elr_enabled(image) and not clean:
        return leader_and_isr_changes(image, config, in_isr_or_elr(image, ended.id), unclean=ended.id)
    moved = list(_without_directory(image, ended.id, request))
    lost = {(topic.id, index) for topic, index, _ in moved}
    whole = [located for located in in_isr(image, ended.id) if (located[0].id, located[1]) not in lost]
    waited_for = start is not None and clean and ended.id not in start.given_up
    return [
        *leader_and_isr_changes(image, config, moved, unclean=ended.id),
        *(
            stays_in_sync_fenced(image, ended, whole)
            if waited_for
            else leader_and_isr_changes(image, config, whole, remove=ended.id)
        ),
    ]


def _without_directory(
    image: MetadataImage, broker: int, request: m.BrokerRegistrationRequest
) -> Iterator[LocatedPartition]:
    """Partitions in which the broker is in ISR or ELR with a log in a directory that it registers no more."""
    here = {*NO_DIRECTORIES, *(bytes(directory) for directory in request.log_dirs)}
    return (located for located in in_isr_or_elr(image, broker) if located[2].directory_of(broker) not in here)


def _registration(
    request: m.BrokerRegistrationRequest, epoch: int, same_life: BrokerRegistration | None
) -> m.RegisterBrokerRecord:
    record = m.RegisterBrokerRecord
    return record(
        broker_id=request.broker_id,
        incarnation_id=bytes(request.incarnation_id),
        broker_epoch=epoch,
        end_points=[
            record.EndPoints(
                name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
            )
            for listener in request.listeners
        ],
        features=[
            record.Features(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=same_life.fenced if same_life else True,
        in_controlled_shutdown=same_life.in_controlled_shutdown if same_life else False,
        log_dirs=[bytes(directory) for directory in request.log_dirs],
    )


def _check_directories(image: MetadataImage, request: m.BrokerRegistrationRequest) -> None:
    directories = [bytes(directory) for directory in request.log_dirs]
    if not directories:
        raise _bad_registration("No directories specified in request")
    if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORY_IDS for directory in directories):
        raise _bad_registration("Reserved directory ID in request")
    if len(set(directories)) < len(directories):
        raise _bad_registration("Duplicate directory ID in request")
    for other in image.brokers.values():
        for directory in set(other.log_dirs) & set(directories):
            if other.id != request.broker_id:
                raise _bad_registration(
                    f"Broker {other.id} is already registered with directory {uuid_text(directory)}"
                )


def _check_features(image: MetadataImage, request: m.BrokerRegistrationRequest) -> None:
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    for name, level in image.features.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The"
                f" broker wants a version between {low} and {high}, inclusive.",
            )


def _bad_registration(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)


class BrokerState(Enum):
    """A broker's state as its controller sees it (BrokerControlState)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True)
class ShutdownProgress:
    """The controller's knowledge of a controlled shutdown beside the image, as offsets of the metadata log."""

    # Of the last change that took leadership or ISR membership from the broker; -1 when it is not shutting down.
    controlled_shutdown_offset: int = -1
    # The offset that the slowest active broker has applied; no limit when none is active.
    lowest_active_offset: int | None = None


def state_of(broker: BrokerRegistration) -> BrokerState:
    """A registered broker's state."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def next_state(
    image: MetadataImage, broker: BrokerRegistration, request: m.BrokerHeartbeatRequest, progress: ShutdownProgress
) -> BrokerState:
    """The broker's state after a heartbeat (BrokerHeartbeatManager.calculateNextBrokerState)."""
    state = state_of(broker)
    if state is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        # It may serve once it has seen its own registration, and all that was before it.
        caught_up = request.current_metadata_offset >= broker.epoch
        return BrokerState.UNFENCED if caught_up and not request.want_fence else BrokerState.FENCED
    if state is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if request.want_shut_down:
            return BrokerState.CONTROLLED_SHUTDOWN if leads_any(image, broker.id) else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED
    lowest = progress.lowest_active_offset
    # Kafka wants a later offset, which its periodic NoOpRecord brings; reaching it is what counts.
    others_know = lowest is None or progress.controlled_shutdown_offset <= lowest
    if leads_any(image, broker.id) or not others_know:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def broker_heartbeat(
    image: MetadataImage,
    request: m.BrokerHeartbeatRequest,
    config: BrokerConfig,
    progress: ShutdownProgress,
    start: ClusterStart | None = None,
) -> ControllerResult[m.BrokerHeartbeatResponse]:
    """State changes that a heartbeat asks for; STALE_BROKER_EPOCH for an earlier life.

    `start`: the whole cluster is starting.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    state, target = state_of(broker), next_state(image, broker, request, progress)
    records: list[Message] = []
    if target is not state:
        match target:
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                records += _fence(image, broker, config)
            case BrokerState.UNFENCED:
                records += _unfence(image, broker, config, start)
            case BrokerState.CONTROLLED_SHUTDOWN:
                records += _start_shutdown(image, broker, config)
    records += _offline_directories(image, broker, request, config)
    response = m.BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.epoch,
        is_fenced=target in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=target is BrokerState.SHUTDOWN_NOW,
    )
    return ControllerResult(tuple(records), response)


def fence_broker(image: MetadataImage, broker_id: int, config: BrokerConfig) -> ControllerResult[None]:
    """A broker whose session has ended leaves all ISRs and leads nothing any longer."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return ControllerResult((), None)
    return ControllerResult(tuple(_fence(image, broker, config)), None)


def _fence(image: MetadataImage, broker: BrokerRegistration, config: BrokerConfig) -> list[Message]:
    return [
        *leader_and_isr_changes(image, config, in_isr(image, broker.id), remove=broker.id),
        m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE),
    ]


def _unfence(
    image: MetadataImage, broker: BrokerRegistration, config: BrokerConfig, start: ClusterStart | None
) -> list[Message]:
    return [
        m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE),
        *(
            leader_and_isr_changes(image, config, leaderless(image), add=broker.id)
            if start is None
            else leaders_at_start(image, config, start, unfencing=broker.id)
        ),
    ]


def _start_shutdown(image: MetadataImage, broker: BrokerRegistration, config: BrokerConfig) -> list[Message]:
    return [
        m.BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=START_CONTROLLED_SHUTDOWN
        ),
        *leader_and_isr_changes(image, config, in_isr(image, broker.id), remove=broker.id),
    ]


def _offline_directories(
    image: MetadataImage, broker: BrokerRegistration, request: m.BrokerHeartbeatRequest, config: BrokerConfig
) -> list[Message]:
    """A broker lost log directories: it leaves the ISRs of the partitions there (KIP-858)."""
    offline = {bytes(directory) for directory in request.offline_log_dirs} & set(broker.log_dirs)
    if not offline:
        return []
    lost = (
        located
        for located in in_isr(image, broker.id)
        if dict(zip(located[2].replicas, located[2].directories, strict=False)).get(broker.id) in offline
    )
    return [
        m.BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            log_dirs=[directory for directory in broker.log_dirs if directory not in offline],
        ),
        *leader_and_isr_changes(image, config, lost, remove=broker.id),
    ]


def unregister_broker(
    image: MetadataImage, request: m.UnregisterBrokerRequest, config: BrokerConfig
) -> ControllerResult[m.UnregisterBrokerResponse]:
    """A broker that will not come back is forgotten."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    records: list[Message] = [
        *leader_and_isr_changes(image, config, in_isr_or_any_elr(image, broker.id), forget=broker.id),
        m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
    ]
    return ControllerResult(tuple(records), m.UnregisterBrokerResponse(error_message=None))
