"""The partition of `__remote_log_metadata` that has the events of a user's partition.

Kafka: `RemoteLogMetadataTopicPartitioner`, which differs from the text of KIP-405.
"""

from backend.protocol.errors import EncodeError
from backend.protocol.ids import UUID_BYTES
from backend.protocol.murmur2 import murmur2, to_positive


def _java_hash(value: int) -> int:
    """`Long.hashCode`, as 32 unsigned bits."""
    return (value ^ value >> 32) & 0xFFFFFFFF


def metadata_partition(topic_id: bytes, partition: int, partitions_count: int) -> int:
    """The partition of `__remote_log_metadata` that holds a partition's events.

    The topic's name plays no part: what is hashed is the topic id's two halves, the lower one first, and the partition.
    """
    if len(topic_id) != UUID_BYTES:
        raise EncodeError(f"a topic id has {UUID_BYTES} bytes, not {len(topic_id)}")
    low, high = _java_hash(int.from_bytes(topic_id[8:], "big")), _java_hash(int.from_bytes(topic_id[:8], "big"))
    mixed = (((31 + low) * 31 + high) * 31 + partition) & 0xFFFFFFFF
    return to_positive(murmur2(mixed.to_bytes(4, "big"))) % partitions_count
