"""The process itself: its event loop, the signals that end it, its file limit."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from backend.runtime.liveness import answer_liveness

# Files that one broker may need: the logs of 50 partitions of each of three internal topics and of 50 of others, which
# stay open, 80 connections, and a quarter of all that no connection may take (`socket_network.CONNECTIONS_SHARE`).
BROKER_FILES: Final = 440
# macOS shows no limit, and takes none above this.
FILES_WISHED: Final = 10_240
# Ends a broker's process because its whole cluster ends. SIGTERM and SIGINT are about this process alone.
WHOLE_CLUSTER_ENDS: Final = signal.SIGUSR1

_log = logging.getLogger(__name__)


def file_limit() -> int:
    """The number of files that this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> int:
    """Lets this process open as many files as it may (a partition needs three or more); returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or soft == resource.RLIM_INFINITY:
        return soft
    for wished in (hard, FILES_WISHED):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wished, hard))
        except (OSError, ValueError) as error:
            _log.info("The limit of open files cannot be %d: %s", wished, error)
        else:
            return wished
    _log.warning("The limit of open files stays at %d", soft)
    return soft


class Ended(asyncio.Event):
    """Set once the process is to end."""

    whole_cluster = False

    def of_whole_cluster(self) -> None:
        """Sets it: all of the cluster ends."""
        self.whole_cluster = True
        self.set()


def run_until_signalled(program: Callable[[Ended], Awaitable[int]]) -> int:
    """Runs a program on a fresh event loop; signals set the event that it is given. Returns its exit code.

    Its supervisor, if it has one, may ask meanwhile whether the loop turns.
    """

    async def main() -> int:
        ended = Ended()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, ended.set)
        loop.add_signal_handler(WHOLE_CLUSTER_ENDS, ended.of_whole_cluster)
        answer_liveness(loop)
        return await program(ended)

    return asyncio.run(main())
