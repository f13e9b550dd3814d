"""Measurements of ebbline alone: each group in a separate process, which ends when its time is over.

python -m tests.benchmarks.alone GROUP [--quick]    prints its figures as one JSON object
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Final

# Seconds; with `rounds.BUDGETS_S`: 1,360 + 60 + 1,280 = 2,700, which is 45 minutes.
BUDGETS_S: Final = {
    "many-topics": 345,  # the observer looks at so many partitions every 78 and 90 s
    "slow-store": 90,
    "remote-metadata": 100,
    "pipeline": 245,  # 40 for three starts of `ebbline up`, 85 to 100 a database
    "dashboard": 200,  # 120 on a slow day
    "quorum": 300,
    "observe": 900,
}
# Not part of the 45 minutes.
ON_REQUEST: Final = frozenset({"observe"})
STOP_S: Final = 20.0


class Overdue(Exception):
    """A group did not end in its time, or failed; the message says what."""


def measure_alone(group: str, *, quick: bool) -> dict[str, float]:
    """The figures of a group by name. Raises Overdue."""
    command = [sys.executable, "-m", __name__, group, *(["--quick"] if quick else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=BUDGETS_S[group])
    except subprocess.TimeoutExpired:
        _end(process)
        raise Overdue(f"{group} did not end within {BUDGETS_S[group]} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise Overdue(f"{group} failed with exit code {process.returncode}; its messages are above")
    figures: dict[str, float] = json.loads(output.decode().strip().splitlines()[-1])
    return figures


def _end(process: subprocess.Popen[bytes]) -> None:
    """The group's processes get the time to stop their own children."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return


def main() -> None:
    """Measures the group that the first word names, in this process."""
    group = sys.argv[1]
    module = import_module(f"tests.benchmarks.{group.replace('-', '_')}")
    measured: Callable[..., dict[str, float]] = getattr(module, f"measure_{group.replace('-', '_')}")
    print(json.dumps(measured(quick="--quick" in sys.argv[2:])))


if __name__ == "__main__":
    main()
