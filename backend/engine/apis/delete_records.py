"""DeleteRecords (21), versions 0-2: raises log start on the leader and waits until the alive followers have done so
(KIP-107). Remote segments that fall below it go at the next expiration run (KIP-405).

Kafka: `KafkaApis.handleDeleteRecordsRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.common.topic_names import INTERNAL_TOPICS
from backend.engine.ports import tasks
from backend.engine.ports.time_slices import Steps
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 21
MIN_VERSION: Final = 0
MAX_VERSION: Final = 2
UNKNOWN_WATERMARK: Final = -1

_TopicResult = m.DeleteRecordsResponse.Topics


class DeleteRecordsServices(Protocol):
    """The parts of the node that these functions use."""

    replica_manager: ReplicaManager


def delete_records(
    services: DeleteRecordsServices, context: RequestContext, request: m.DeleteRecordsRequest
) -> Steps[tasks.Future[m.DeleteRecordsResponse]]:
    """Low watermarks once they have reached what was asked for; REQUEST_TIMED_OUT for those that have not in time.

    A partition that is named more than once is answered once, for the offset that was named last, as in Kafka.
    """
    rows: list[_TopicResult.Partitions] = []
    required: list[tuple[int, Partition, int]] = []
    response = m.DeleteRecordsResponse()
    targets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        targets.setdefault(topic.name, {}).update((part.partition_index, part.offset) for part in topic.partitions)
        yield
    for name, offsets in targets.items():
        topic_result = _TopicResult(name=name)
        response.topics.append(topic_result)
        for index, offset in offsets.items():
            yield
            row = _TopicResult.Partitions(partition_index=index, low_watermark=UNKNOWN_WATERMARK)
            try:
                partition = _partition(services, name, index)
                required.append((len(rows), partition, partition.delete_records_before(offset)))
            except KafkaError as error:
                row.error_code = error.code
            topic_result.partitions.append(row)
            rows.append(row)
    answered: tasks.Future[m.DeleteRecordsResponse] = tasks.future()

    def respond(outcome: dict[int, tuple[ErrorCode, int]]) -> None:
        for at, (error, low_watermark) in outcome.items():
            rows[at].error_code, rows[at].low_watermark = error, low_watermark
        answered.set_result(response)

    if required:
        services.replica_manager.wait_for_deletes(required, request.timeout_ms, respond)
    else:
        respond({})
    return answered


def _partition(services: DeleteRecordsServices, topic: str, index: int) -> Partition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    return services.replica_manager.partition(topic, index)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, delete_records),)
