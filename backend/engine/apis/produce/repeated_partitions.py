"""Partitions that a Produce names twice: the last records of each count.

Kafka: `KafkaApis.handleProduceRequest` keeps the records in a map by partition.
"""

from __future__ import annotations

from backend.protocol import messages as m

_Topic = m.ProduceRequest.TopicData


def without_repeats(topics: list[_Topic]) -> list[_Topic]:
    """Each topic and each of its partitions once, in the order in which they were named first.

    The list itself where nothing is named twice, which is what every client sends.
    """
    if _named_once(topics):
        return topics
    merged: dict[tuple[str, bytes], dict[int, _Topic.PartitionData]] = {}
    for topic in topics:
        parts = merged.setdefault((topic.name, bytes(topic.topic_id)), {})
        parts.update((part.index, part) for part in topic.partition_data)
    return [
        _Topic(name=name, topic_id=topic_id, partition_data=list(parts.values()))
        for (name, topic_id), parts in merged.items()
    ]


def _named_once(topics: list[_Topic]) -> bool:
    if len(topics) > 1 and len({(topic.name, bytes(topic.topic_id)) for topic in topics}) < len(topics):
        return False
    counts = ((len(parts), parts) for topic in topics if len(parts := topic.partition_data) > 1)
    return all(len({part.index for part in parts}) == count for count, parts in counts)
