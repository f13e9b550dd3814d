"""Why a node refuses to start, as one sentence: what, about which thing, what to do."""

from __future__ import annotations

import errno
from typing import Final

from backend.engine.config import ConfigError
from backend.engine.log.errors import CorruptLog, LogDirError
from backend.engine.raft.node import QuorumMismatch
from backend.engine.raft.voter_memory import MetadataLost
from backend.protocol.errors import KafkaError

REFUSALS: Final = (ConfigError, LogDirError, CorruptLog, KafkaError, QuorumMismatch, MetadataLost, OSError)


def sentence(error: BaseException) -> str:
    """The reason for an operator."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{_address(error)} is in use by another process; stop that one or choose another port."
    if isinstance(error, KafkaError):
        return error.message.rstrip(".") + "."
    return str(error).rstrip(".") + "."


def _address(error: OSError) -> str:
    return str(error.filename) if error.filename else "One of its ports"
