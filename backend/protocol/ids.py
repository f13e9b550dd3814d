"""Uuids and names of partitions, as messages, metadata records and every layer above use them."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from typing import Final, NamedTuple

UUID_BYTES: Final = 16
UUID_TEXT_CHARS: Final = 22  # 128 bits at 6 bits a character, without padding
ZERO_UUID: Final = bytes(UUID_BYTES)


def uuid_text(value: bytes) -> str:
    """Kafka's text of a uuid: url-safe base64 of its 16 bytes without padding, 22 characters."""
    if len(value) != UUID_BYTES:
        raise ValueError(
            f"a uuid has {UUID_BYTES} bytes, not {len(value)}; pass the bytes as they stand in the message"
        )
    return urlsafe_b64encode(value).decode("ascii").rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid in Kafka's text form; ValueError when the text is anything else."""
    value = b""
    if len(text) == UUID_TEXT_CHARS:
        with suppress(ValueError):
            value = urlsafe_b64decode(text + "==")
    # The decoder skips characters outside its alphabet and ignores surplus bits; only the canonical text is a name.
    if len(value) == UUID_BYTES and uuid_text(value) == text:
        return value
    raise ValueError(
        f"{text!r} is not a uuid; give the {UUID_TEXT_CHARS} characters that Kafka prints, such as a topic id"
    )


# Tuples, because they are keys everywhere: a dataclass's hash is Python code, six times as slow.


class TopicPartition(NamedTuple):
    """A partition by name; prints as `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of one incarnation of a topic; prints as `topic id:topic-partition`, as Kafka does."""

    topic: str
    topic_id: bytes
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{uuid_text(self.topic_id)}:{self.topic}-{self.partition}"
