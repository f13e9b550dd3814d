"""Both systems at the same work in turns, one right after the other, within the time that a group may take.

Each system is started once for all groups but `start`: Apache Kafka takes 8 to 17 s. One that is not at work is idle.

A machine's speed may change within a minute, so what is compared is measured as close together as it can be. A virtual
machine gives memory that nobody uses back to its host, and what writes to pages that it has to ask for again took up to
four times the CPU: what had been done a moment before decided who had to. So each work begins with memory at hand.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.benchmarks.peers import Peer, PeerUnavailable, apache_kafka, ebbline
from tests.benchmarks.works import Work

ROUNDS, ROUNDS_QUICK = 5, 1
OURS, THEIRS = "ebbline", "Apache Kafka"
# The largest work writes 2 GB: half a second to a second.
TOUCHED_BYTES: Final = 2 << 30
# Seconds that a group may take; no round begins that would not end within them, if it is as long as the one before it.
# Together with `alone.BUDGETS_S`, and 60 s for the starts, at most 45 minutes.
BUDGETS_S: Final = {
    "start": 150,  # five starts of each: 5 x (17 + 3 + 8 to stop and to be ready)
    "idle": 40,
    "produce": 205,  # 600 MB, 2 GB and 200 MB at 85 to 180 MB/s: 18 s a system and round, 5 for topics and clients
    "single": 165,  # twice 100,000 records at 10,000 to 32,000/s: 15 s and 12 s a round, 2 for topics and clients
    "latency": 150,  # twice 5,000 records at 1,000/s: 13 s a system and round
    "consume": 120,  # twice 600 MB written (4 s) and read three times (3 s), 2 for topics and clients: 18 s a round
    "tiering": 195,
    "times": 150,
    "bootstrap": 185,
}


@dataclass
class Figures:
    """The figures of each work, by its name; and why one is missing."""

    ours: dict[str, list[float]] = field(default_factory=dict)
    theirs: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    kafka_skipped: str | None = None

    def of(self, peer: str) -> dict[str, list[float]]:
        return self.ours if peer == OURS else self.theirs


def measure(works: Sequence[Work], figures: Figures, *, quick: bool) -> None:
    """All works, group by group, into `figures`."""
    groups = list(dict.fromkeys(work.group for work in works))
    for group in groups:
        if group == "start":
            _in_turns([work for work in works if work.group == group], _fresh(figures), figures, quick=quick)
    if not set(groups) - {"start"}:
        return
    with ExitStack() as stack:
        peers = list(_both(stack, figures))
        for group in groups:
            if group != "start":
                _in_turns([work for work in works if work.group == group], _same(peers), figures, quick=quick)


Opened = Callable[[int], Iterator[Peer]]


def _both(stack: ExitStack, figures: Figures) -> Iterator[Peer]:
    yield stack.enter_context(ebbline())
    if figures.kafka_skipped is None:
        try:
            yield stack.enter_context(apache_kafka())
        except PeerUnavailable as error:
            _skip(figures, error)


def _skip(figures: Figures, error: PeerUnavailable) -> None:
    figures.kafka_skipped = str(error)
    print(f"Apache Kafka was not measured: {error}", file=sys.stderr)


def _same(peers: list[Peer]) -> Opened:
    """The same systems in every round; who begins changes."""
    return lambda number: iter(peers if number % 2 == 0 else peers[::-1])


def _fresh(figures: Figures) -> Opened:
    """Each system alone on the machine, started for the round and stopped after it."""

    def opened(number: int) -> Iterator[Peer]:
        with ebbline() as peer:
            yield peer
        if figures.kafka_skipped is None:
            try:
                with apache_kafka() as peer:
                    yield peer
            except PeerUnavailable as error:
                _skip(figures, error)

    return opened


def _in_turns(works: Sequence[Work], opened: Opened, figures: Figures, *, quick: bool) -> None:
    """The rounds of one group."""
    group = works[0].group
    began_s = round_began_s = time.monotonic()
    for number in range(ROUNDS_QUICK if quick else ROUNDS):
        due = [work for work in works if (number == 0 or work.repeat) and work.name not in figures.failures]
        if not due:
            return
        for work in due:
            for peer in opened(number):
                with _failure_as_row(work, peer, figures):
                    topic = f"bench-{group}-{works.index(work)}-{number}"
                    # The next work would wait for the disk to write the pages that this work has left in memory.
                    os.sync()
                    _touch_memory()
                    value = work.measure(peer, topic, quick)
                    figures.of(peer.name).setdefault(work.name, []).append(value)
                    print(f"  {peer.name}: {work.name}: {value:.2f} {work.unit}", file=sys.stderr, flush=True)
                    peer.delete_topic(topic)
        now_s = time.monotonic()
        if now_s - began_s + (now_s - round_began_s) > BUDGETS_S[group]:
            return
        round_began_s = now_s


def _touch_memory() -> None:
    """Has so much free memory that the next work finds it: what it writes, at most what a third of the machine has."""
    size = min(TOUCHED_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3)
    populated = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size, flags=populated).close()


@contextmanager
def _failure_as_row(work: Work, peer: Peer, figures: Figures) -> Iterator[None]:
    """A work that fails has a row that says so; the others go on."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        figures.failures[work.name] = f"{peer.name}: {error}"
        print(f"  {peer.name}: {work.name} failed: {error}", file=sys.stderr, flush=True)
