"""The end of Spark's JVM, as one true line.

A JVM that is killed (by the system's memory killer, say) leaves Python with refused connections: py4j and Spark's
accumulators each print a traceback of them, none of which says that the process is gone.
"""

from __future__ import annotations

import logging
import socketserver
import subprocess
import sys
from typing import Any, Final

from pyspark import accumulators
from pyspark.sql import SparkSession

# Between the end of the JVM's connections and the end of its process.
END_S: Final = 0.3


class JvmEnded(Exception):
    """The JVM is gone, with all that Spark had. The message is one sentence for people."""


def keep_quiet() -> None:
    """Silences py4j and Spark about broken connections to the JVM; call it once, after logging is set up."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_py4j)
    server: Any = accumulators.AccumulatorTCPServer
    server.handle_error = _told_elsewhere


def require_running(session: SparkSession) -> None:
    """Raises JvmEnded once the process of the session's JVM has ended; call it after a stream has failed."""
    if (how := how_it_ended(session)) is not None:
        raise JvmEnded(
            f"Spark's Java process {how}; nothing is lost, and what it had begun is read again after the next start."
            " Where it was not killed by hand, look whether the machine ran out of memory."
        )


def how_it_ended(session: SparkSession) -> str | None:
    """None while it runs, or where this process has not started it."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{process.pid} {how}"


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


def _told_elsewhere(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
    """As socketserver's, but for the end of a connection: `require_running` tells what it means."""
    if not isinstance(sys.exception(), (EOFError, OSError)):
        socketserver.BaseServer.handle_error(server, request, client_address)
