"""One embedded broker as a separate process, so that the measured client does not share an interpreter with it.

python -m tests.benchmarks.broker DIR    prints host:port; ends with its standard input
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.kafka_peer import running_broker


@contextmanager
def broker_process(folder: Path) -> Iterator[str]:
    """``host:port`` of a broker that runs during the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.broker", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        servers = process.stdout.readline().decode().strip()
        if not servers:
            raise RuntimeError("the broker did not start; its messages are above")
        yield servers
    finally:
        process.stdin.close()
        process.wait(60)


def main() -> None:
    """Run until nobody holds the other end."""
    with running_broker(Path(sys.argv[1])) as servers:
        print(servers, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
