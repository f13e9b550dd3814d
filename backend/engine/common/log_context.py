"""The name of the node in each log line: several run in one process, and each follows the same partitions.

Tasks and connections that a node starts inherit the name, so no call has to pass it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from backend.runtime.redact import printable

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(node)s%(name)s: %(message)s"

_node: ContextVar[str] = ContextVar("node", default="")


@contextmanager
def logging_as_node(node_id: int) -> Iterator[None]:
    """Log lines of the block, and of all tasks that it starts, begin with ``[node 1]``."""
    token = _node.set(f"[node {node_id}] ")
    try:
        yield
    finally:
        _node.reset(token)


class NodeFilter(logging.Filter):
    """Gives every record the attribute ``node`` that :data:`LOG_FORMAT` shows; for handlers."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.node = _node.get()
        return True


class PrintableFormatter(logging.Formatter):
    """One line a message, whatever texts of clients and brokers are in it; a traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def configure_logging(handler: logging.Handler, level: str) -> None:
    """The process's log lines, all to one handler."""
    handler.addFilter(NodeFilter())
    handler.setFormatter(PrintableFormatter(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
