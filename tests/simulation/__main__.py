"""Replays seeds: ``python -m tests.simulation SEED`` prints what happened; ``FIRST LAST`` plays many, one line each."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.simulation.combined_nodes import simulate_combined_nodes
from tests.simulation.covered import Covered, report
from tests.simulation.result import Result
from tests.simulation.run import simulate


def main() -> int:
    """Exit code 1 when a property was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", type=int, metavar="SEED")
    parser.add_argument("last", type=int, nargs="?", metavar="LAST", help="play all seeds up to this one")
    parser.add_argument("--quiet", action="store_true", help="the outcome only")
    parser.add_argument(
        "--lost-disks", action="store_true", help="runs in which disks are lost while their nodes are down"
    )
    parser.add_argument(
        "--combined-nodes", action="store_true", help="runs of three nodes that are broker and controller each"
    )
    parser.add_argument("--covered", action="store_true", help="tell which lines of log, remote and replica ran")
    options = parser.parse_args()
    if options.covered:
        return covered(options.first, options.last or options.first)
    play: Callable[[int, Callable[[str], None] | None], Result] = (
        (lambda seed, show: simulate_combined_nodes(seed, show=show)[0])
        if options.combined_nodes
        else (lambda seed, show: simulate(seed, show=show, lost_disks=options.lost_disks))
    )
    if options.last is None:
        result = play(options.first, None if options.quiet else print)
        print(f"seed {result.seed}: {result.violation or 'no violation'}; faults {result.faults}")
        print(f"trace {result.trace_hash}")
        return 0 if result.ok else 1
    failed = 0
    started_s = time.process_time()
    for seed in range(options.first, options.last + 1):
        result = play(seed, None)
        failed += not result.ok
        if not result.ok or not options.quiet:
            print(
                f"{seed} {result.violation or 'ok'} {result.trace_hash} {result.virtual_ms / 1000:.0f} virtual s "
                f"{result.messages} messages {result.acknowledged} acknowledged {result.reads} reads", flush=True
            )  # fmt: skip
    took_s = time.process_time() - started_s
    count = options.last - options.first + 1
    print(
        f"{count} seeds, {failed} with a violation, {took_s:.1f} s of one core, {count / took_s:.2f} seeds per second"
    )
    return 1 if failed else 0


def covered(first: int, last: int) -> int:
    """Plays the seeds and prints what they carry out; several times slower."""
    lines = Covered()
    with lines:
        for seed in range(first, last + 1):
            simulate(seed)
    for name, hit, total, missed in report(lines.missed):
        print(f"{name:32} {hit:5} of {total:5} {hit / max(1, total):6.1%}  {missed or ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
