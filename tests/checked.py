"""The tests that `make check` runs: they start no process and are over before anybody waits.

The marker `outside` names the others: it starts a process, a browser or a JVM, or waits for the real clock. In
`make check` they are left out, and any other test that starts a process fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

OUTSIDE: Final = "outside"
# Fixtures that start a process: a test with one of them is outside without the marker.
FIXTURES: Final = frozenset({"postgresql_server"})
STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


class Guard:
    """Refuses new processes while a test runs; Python takes no audit hook away again."""

    def __init__(self) -> None:
        self.test: str | None = None
        sys.addaudithook(self._hook)

    @contextmanager
    def of(self, test: str) -> Iterator[None]:
        """While `test` runs, it may start no process."""
        self.test = test
        try:
            yield
        finally:
            self.test = None

    def _hook(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self.test is not None and event in STARTS:
            raise AssertionError(f"{self.test} starts a process: mark it with pytest.mark.{OUTSIDE}")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what is outside."""
    outside = [item for item in items if _is_outside(item)]
    items[:] = [item for item in items if not _is_outside(item)]
    if outside:
        config.hook.pytest_deselected(items=outside)


def _is_outside(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker(OUTSIDE) is not None or not FIXTURES.isdisjoint(fixtures)
