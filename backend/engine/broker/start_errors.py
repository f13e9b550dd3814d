"""The errors that a node refuses to start with, and their description in one sentence for the operator."""

from __future__ import annotations

import errno
from typing import Final

from backend.engine.config import ConfigError
from backend.engine.log.log_errors import CorruptLog, LogDirError
from backend.engine.raft.raft_node import QuorumMismatch
from backend.engine.raft.voter_memory import MetadataLost
from backend.protocol.errors import KafkaError

START_ERRORS: Final = (ConfigError, LogDirError, CorruptLog, KafkaError, QuorumMismatch, MetadataLost, OSError)


class StartRefused(Exception):
    """The node cannot start as it is set up; one sentence for the operator. Nothing is left open."""


def describe_error(error: BaseException) -> str:
    """Returns one sentence: what is wrong, with which thing, and what to do."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{_address(error)} is in use by another process; stop that one or choose another port."
    if isinstance(error, KafkaError):
        return error.message.rstrip(".") + "."
    return str(error).rstrip(".") + "."


def _address(error: OSError) -> str:
    return str(error.filename) if error.filename else "One of its ports"
