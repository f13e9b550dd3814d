"""AlterReplicaLogDirs (34), versions 1-2: moves replicas between the log directories of this broker (KIP-113).

Kafka: `KafkaApis.handleAlterReplicaLogDirsRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.ports.time_slices import Steps, in_parts
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import NONE, ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

API_KEY: Final = 34
MIN_VERSION: Final = 1
MAX_VERSION: Final = 2

# Partitions that are noted before others may have a turn.
INDEXES_PER_STEP: Final = 5_000

_Results = m.AlterReplicaLogDirsResponse.Results


class AlterReplicaLogDirsServices(Protocol):
    """The parts of the node that these functions use."""

    log_manager: LogManager
    replica_manager: ReplicaManager


def alter_replica_log_dirs(
    services: AlterReplicaLogDirsServices, context: RequestContext, request: m.AlterReplicaLogDirsRequest
) -> Steps[m.AlterReplicaLogDirsResponse]:
    """Answers when the moves have begun; DescribeLogDirs shows how far they are.

    For a replica that is not here (yet) REPLICA_NOT_AVAILABLE, and the directory is remembered for its creation. A
    partition that is named twice goes to the directory named last, and is answered once, as in Kafka.
    """
    directories: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for some in in_parts(topic.partitions, INDEXES_PER_STEP):
                directories.update((TopicPartition(topic.name, index), directory.path) for index in some)
                yield
    results: dict[str, _Results] = {}
    for partition, path in directories.items():
        rows = results.setdefault(partition.topic, _Results(topic_name=partition.topic)).partitions
        error = _move(services, partition, path)
        rows.append(_Results.Partitions(partition_index=partition.partition, error_code=error))
        yield
    return m.AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(services: AlterReplicaLogDirsServices, partition: TopicPartition, path: str) -> int:
    replicas, logs = services.replica_manager, services.log_manager
    try:
        target = logs.directories.dir_at(path)
        hosted = replicas.find(partition.topic, partition.partition)
        if isinstance(hosted, ErrorCode):
            if hosted is ErrorCode.KAFKA_STORAGE_ERROR:
                return hosted
            if len(logs.preferred_dirs) < PREFERRED_MAX:
                logs.preferred_dirs[partition] = target.path
            unknown = hosted is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return hosted if unknown else ErrorCode.REPLICA_NOT_AVAILABLE
        replicas.log_dir_moves.move(hosted, path)
    except KafkaError as error:
        return error.code
    return NONE


# Wishes for replicas that may never come: 100 bytes each, so 1 MB.
PREFERRED_MAX: Final = 10_000

APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, alter_replica_log_dirs),)
