"""Getting past a batch of the source topic whose records are none.

librdkafka gives nothing from such a batch on, and no error. Brokers refuse such batches, logs of earlier versions may
hold one; records at offsets behind it show that the brokers are neither busy nor away. Waiting is the cost: two
seconds for each offset of the batch, which mostly has one record, and six to be sure.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# So long without a record, from a broker that says that there are more: the place is looked at.
STUCK_S: Final = 5.0
PROBE_S: Final = 2.0
ASK_S: Final = 5.0
# Offsets that are tried one after the other, so that no good record is passed over; then in steps that double.
SINGLY: Final = 64


def readable_from(consumer: Consumer, topic: str, partition: int, start: int, end: int) -> int | None:
    """The first offset behind `start` that gives a record, `end` when none does. None when `start` itself gives one
    after all, or when no broker answers. Takes the consumer's assignment; assign again afterwards.
    """
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_S, cached=False)
        if high <= start or _gives(consumer, topic, partition, start):
            return None
        readable = _search(consumer, topic, partition, start, end)
        # A broker that is busy for a while must not pass for a batch that is none.
        sure = not _gives(consumer, topic, partition, start) and _gives(consumer, topic, partition, readable)
    except KafkaException:
        return None
    return readable if sure else None


def _search(consumer: Consumer, topic: str, partition: int, start: int, end: int) -> int:
    silent, step = start, 1
    while silent + step < end:
        probe = silent + step
        if _gives(consumer, topic, partition, probe):
            return _first(consumer, topic, partition, silent, probe)
        silent = probe
        step = 1 if silent - start < SINGLY else step * 2
    return end


def _first(consumer: Consumer, topic: str, partition: int, silent: int, gives: int) -> int:
    while gives - silent > 1:
        middle = (silent + gives) // 2
        if _gives(consumer, topic, partition, middle):
            gives = middle
        else:
            silent = middle
    return gives


def _gives(consumer: Consumer, topic: str, partition: int, offset: int) -> bool:
    consumer.assign([TopicPartition(topic, partition, offset)])
    try:
        for message in consumer.consume(1, PROBE_S):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return True
            raise KafkaException(error)
    finally:
        consumer.unassign()
    return False
