"""Topic names: the legal ones, the ones that collide, and those of the cluster itself (Kafka: `Topic`)."""

from __future__ import annotations

import re
from typing import Final

from backend.protocol.errors import ErrorCode, KafkaError

NAME_CHARS_MAX: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
CLUSTER_METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
# Kafka's Topic.INTERNAL_TOPICS; __remote_log_metadata is not among them.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether Metadata flags the topic as internal."""
    return name in INTERNAL_TOPICS


def name_problem(name: str) -> str | None:
    """Why a name is illegal, in Kafka's words, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION for an illegal name."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def collision_key(name: str) -> str | None:
    """A key that is equal for names that collide in metric names; None for names without a period or underscore."""
    return name.replace(".", "_") if "." in name or "_" in name else None
