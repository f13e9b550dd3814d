"""Reads the findings of a product all the time, as somebody would who watches it, and keeps them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from tests.incidents.rigs.product import Product, finding_of_command
from tests.incidents.timeline import CommandRead, FindingsRead, SeenFinding

POLL_S: Final = 0.5


class Recorder:
    """A context manager; `reads`, `commands` and `readers` are of the time within."""

    def __init__(self, product: Product, *, reads_groups: bool) -> None:
        self._product, self._reads_groups = product, reads_groups
        self.reads: list[FindingsRead] = []
        self.commands: list[CommandRead] = []
        self.readers: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            read = self._product.findings()
            if read is None:
                # The API is gone: a person asks by the command, and reads what that says when it ends.
                command = self._product.status()
                self.commands.append(command)
                finding = finding_of_command(command)
                read = None if finding is None else FindingsRead(time.monotonic(), (finding,))
            elif self._reads_groups:
                self.readers |= self._product.readers()
            # A command that reads a database which has just come back says nothing about findings: neither does a gap.
            if read is not None:
                self.reads.append(read)
            self._stop.wait(max(0.0, POLL_S - (time.monotonic() - began_s)))

    def ask_status(self) -> None:
        """Keeps a run of `ebbline status`."""
        self.commands.append(self._product.status())

    def open_now(self) -> tuple[SeenFinding, ...]:
        """As they were read last."""
        return self.reads[-1].findings if self.reads else ()

    def wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Until it is so, or the time is over; whether it is."""
        until_s = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() >= until_s:
                return False
            time.sleep(POLL_S / 2)
        return True
