"""The batches of one Produce request, appended one after the other within limits of time and decompressed bytes.

A worker decompresses and validates a batch that grows large, and the loop serves others after each time slice. So
appending is a generator, which mostly never yields.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Protocol

from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.validation.produced_batch import ValidatedBatch, validate_produced
from backend.engine.ports import Ports, tasks
from backend.engine.replica.partition import Partition
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX

# A batch that holds no more is decompressed on the loop: 10 ms with gzip, the slowest codec. One that holds more has
# cost as much when that is noticed.
INLINE_BYTES_MAX: Final = 4 * 1024 * 1024
# All batches of one request together: what its largest frame (100 MiB) holds at a ratio of five, and 2 s of a worker.
# 394 kB of zstd can hold 12 GB.
REQUEST_BYTES_MAX: Final = 512 * 1024 * 1024
# Time on the loop before it serves others.
SLICE_MS: Final = 20.0
# Byte 22 of a batch is the low byte of its attributes; its last three bits name the codec.
ATTRIBUTES_AT: Final = 22
CODEC_MASK: Final = 7

# Work for a worker thread; None gives the loop to others.
ValidationWork = Callable[[], ValidatedBatch] | None
# Appends some batches: it yields work, is sent what that gave (or thrown its KafkaError), and returns the infos.
AppendSteps = Generator[ValidationWork, ValidatedBatch | None, AppendInfo]


class RequestCost:
    """The time and the decompressed bytes that one request has taken so far."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._slice_ends_ms = monotonic_ms() + SLICE_MS
        self.bytes_left = REQUEST_BYTES_MAX

    def slice_is_over(self) -> bool:
        """Whether the time slice is over; the next one begins with this call."""
        now_ms = self._monotonic_ms()
        if now_ms < self._slice_ends_ms:
            return False
        self._slice_ends_ms = now_ms + SLICE_MS
        return True


def is_compressed(records: memoryview) -> bool:
    """Whether the batch says so, if it is one."""
    return len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & CODEC_MASK != 0


def may_be_large(error: KafkaError, records: memoryview) -> bool:
    """Whether a batch that was refused on the loop may only have been too large for it."""
    return error.code is ErrorCode.UNKNOWN_SERVER_ERROR and is_compressed(records)


class ProduceAppendServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    large_batches: tasks.Lock


def append_within(
    services: ProduceAppendServices, cost: RequestCost, partition: Partition, records: memoryview, acks: int
) -> AppendSteps:
    """Appends one batch. KafkaError as `Partition.append`, and MESSAGE_TOO_LARGE for what the request may not hold."""
    inline = min(INLINE_BYTES_MAX, cost.bytes_left)
    try:
        info = partition.append(records, acks=acks, decompressed_bytes_max=inline)
    except KafkaError as error:
        if not may_be_large(error, records):
            raise
    else:
        cost.bytes_left -= info.decompressed_bytes
        return info
    bytes_max = min(DECOMPRESSED_BYTES_MAX, cost.bytes_left)
    log = partition.log
    work = partial(
        validate_produced,
        records,
        log.config,
        log.topic_partition,
        now_ms=services.ports.clock.time_ms(),
        decompressed_bytes_max=bytes_max,
    )
    try:
        if bytes_max <= inline:
            raise _holds_too_much()
        batch = yield work
    except KafkaError as error:
        # A refused batch counts as if it had held all it may.
        cost.bytes_left -= bytes_max
        if bytes_max < DECOMPRESSED_BYTES_MAX and may_be_large(error, records):
            raise _holds_too_much() from None
        raise
    assert batch is not None
    cost.bytes_left -= batch.decompressed_bytes
    return partition.append_validated(batch, acks=acks)


def _holds_too_much() -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The batches of the request hold more than {REQUEST_BYTES_MAX} bytes decompressed; send fewer at a time",
    )


async def carry_out(services: ProduceAppendServices, work: ValidationWork) -> ValidatedBatch | None:
    """The result of the work. Raises its KafkaError."""
    if work is None:
        await tasks.sleep_ms(0)
        return None
    # One at a time: each takes up to 128 MiB, and twice that while its buffer grows.
    async with services.large_batches:
        return await services.ports.workers.run(work)
