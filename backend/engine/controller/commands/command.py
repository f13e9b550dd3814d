"""The result of a command, and checks that commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from backend.engine.controller.image.metadata_image import BrokerRegistration, MetadataImage
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

R = TypeVar("R")

# QuorumController.MAX_RECORDS_PER_USER_OP: one request may not fill the log of the whole cluster.
RECORDS_PER_COMMAND_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R]):
    """Records to write, in order, and the answer to send once they are committed.

    At most `RECORDS_PER_COMMAND_MAX` records are written all or none; what the controller does by itself for a whole
    broker may be more and then goes in several batches, each of which leaves a cluster that works.
    """

    records: tuple[Message, ...]
    response: R


# A pure function over the newest image. KafkaError: the whole command is refused.
Command = Callable[[MetadataImage], ControllerResult[R]]


class CommandQueue(Protocol):
    """The controller, for parts that read the newest image and submit commands."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        ...

    async def submit(self, name: str, command: Command[R], *, by_worker: bool = False) -> R:
        """The command's response once its records are committed; KafkaError when the whole command is refused."""
        ...


class ActiveController(CommandQueue, Protocol):
    """The controller of the epoch that it leads, for parts that fence brokers."""

    @property
    def isr_frozen(self) -> bool:
        """Whether no broker is fenced for its silence any more, because the whole cluster is about to stop."""
        ...


def checked_result(records: Sequence[Message], response: R) -> ControllerResult[R]:
    """A request's outcome; POLICY_VIOLATION when it would write too many records at once."""
    check_record_count(len(records))
    return ControllerResult(tuple(records), response)


def check_record_count(count: int) -> None:
    """POLICY_VIOLATION when one request would write so many records, with the words of Kafka's QuorumController."""
    if count > RECORDS_PER_COMMAND_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def same_names(items: Sequence[Any]) -> set[str]:
    """Names that occur more than once among items with a `name`."""
    seen: set[str] = set()
    twice: set[str] = set()
    for item in items:
        (twice if item.name in seen else seen).add(item.name)
    return twice


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration; STALE_BROKER_EPOCH unless the broker speaks for its present registration (KIP-841)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )
    return broker
