"""KIP-405's follower fetch scenarios and KIP-1023's bootstrap as plays on a `Stage`.

`python -m tests.scenarios.kip_405` writes the golden transcripts again; read the difference before you keep it. A file
`NAME.kafka.txt` is there only where `remote.log.metadata.overlap=kafka` makes a difference. Epochs are higher than the
KIP's after a crash of the last in-sync replica: as in Kafka, the time without a leader has a separate epoch.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.scenarios.stage import A, B, Stage, stage

GOLDEN: Final = Path(__file__).parent / "golden"
OVERLAPS: Final = ("kip", "kafka")
UNCLEAN: Final = {"unclean_leader_election_enable": "true"}
Scenario = Callable[[Stage], Awaitable[None]]


async def new_empty_follower(on: Stage, *, flag: bool) -> None:
    """Scenario 1, and KIP-1023's steps for the same leader: 0-2 remote only, 3-5 remote and local, 6 and 7 local."""
    on.create(A)
    await on.produce("msg 0", "msg 1", "msg 2")
    on.roll()
    await on.new_epoch()
    await on.produce("msg 3")
    await on.copied(2)
    await on.forget_local(A)
    await on.produce("msg 4")
    await on.new_epoch()
    await on.produce("msg 5")
    on.roll()
    await on.copied(5)
    await on.produce("msg 6")
    await on.new_epoch()
    await on.produce("msg 7")
    await on.show("A leads; B is not a replica yet")
    on.flag(B, flag)
    await on.nodes.reassign("kip405", A, B)
    await on.settle()
    await on.show(f"B has become a replica, follower.fetch.last.tiered.offset.enable={str(flag).lower()}")
    on.show_phases(B)
    await on.stop(A)
    await on.show("A has stopped: B alone serves what is local there, and all of the remote tier")


async def out_of_sync_follower(on: Stage) -> None:
    """Scenario 2: while B is away the leader deletes locally what B would need."""
    on.create(A, B)
    await on.produce("msg 0", "msg 1", "msg 2")
    on.roll()
    await on.settle()
    await on.new_epoch()
    await on.produce("msg 3")
    await on.settle()
    await on.stop(B)
    await on.produce("msg 4")
    await on.new_epoch()
    await on.produce("msg 5")
    on.roll()
    await on.produce("msg 6")
    await on.new_epoch()
    await on.produce("msg 7", "msg 8")
    on.roll()
    await on.copied(8)
    await on.produce("msg 9")
    await on.show("B is away and holds 0..3; the leader has everything locally")
    await on.produce("msg 10", "msg 11")
    await on.forget_local(A)
    await on.show("the leader has deleted locally what is below 9")
    on.flag(B, True)
    await on.restart(B)
    await on.settle()
    await on.show("B is back: it is not empty, so the flag makes no difference")
    on.show_phases(B)


async def hard_failures(on: Stage) -> None:
    """Scenario 3 (KIP-101's second): both crash, and B, which leads next, has lost 1 and 2."""
    on.create(A, B)
    await on.produce("msg 0", "msg 1")
    on.roll()
    await on.copied(1)
    await on.produce("msg 2")
    await on.settle()
    await on.show("A leads and has copied 0-1")
    await on.stop(A)
    await on.stop(B)
    await on.lose(B, records=1)
    await on.restart(B, crashed=True)
    await on.produce("msg 3")
    await on.copied(0)
    await on.show("both crashed; B came back first, without 1 and 2, leads and takes msg 3 at offset 1")
    await on.restart(A)
    await on.settle()
    await on.show("A is back: it cuts its log to where it agrees with B")
    on.show_phases(A)
    on.roll()
    await on.produce("msg 4")
    await on.settle()
    await on.nodes.until("B copies its segment", lambda: len(on.segments(B)) == 2)
    await on.copied(1)
    await on.settle()
    await on.show("msg 4 has come, and B has copied its closed segment")
    on.show_lookups((0, 0), (0, 1), (3, 1), (0, 2), (3, 2))
    await on.forget_local(B)
    await on.show("B's local retention has deleted 0 and 1: offset 1 is msg 3, never msg 1")
    await on.show_position(2, 0)
    await on.show_position(1, 3)


async def unclean_election(on: Stage) -> None:
    """Scenario 4: B, which has only offset 0, becomes leader, and copies other records at offsets already copied."""
    on.create(A, B, **UNCLEAN)
    await on.produce("msg 0")
    await on.settle()
    await on.stop(B)
    await on.produce("msg 1", "msg 2")
    on.roll()
    await on.copied(2)
    await on.produce("msg 3")
    await on.show("A leads and has copied 0-2; B is out of sync and holds offset 0")
    await on.stop(A)
    await on.restart(B)
    await on.nodes.until("B leads", lambda: on.leader == B)
    await on.produce("msg 4")
    on.roll()
    await on.produce("msg 5")
    await on.nodes.until("B copies its segment", lambda: len(on.segments(B)) == 2)
    await on.copied(1)
    await on.settle()
    await on.show("A has stopped, B leads without 1..3, has taken msg 4 and msg 5, and copied 0-1")
    on.show_lookups((0, 0), (0, 1), (0, 2), (2, 1), (2, 2))
    await on.forget_local(B)
    await on.show("B has deleted 0 and 1 locally")
    await on.show_position(1, 2)
    await on.show_position(2, 0)
    await on.restart(A)
    await on.settle()
    await on.show("A is back: what B never had is cut off, and then its beginning is remote only")
    on.show_phases(A)


async def two_unclean_elections(on: Stage) -> None:
    """Scenario 5: the remote tier holds two histories; B comes back empty."""
    on.create(A, B, **UNCLEAN)
    await on.produce("msg 0", "msg 1")
    await on.settle()
    await on.stop(B)
    await on.produce("msg 2", "msg 3")
    on.roll()
    await on.copied(3)
    await on.produce("msg 4")
    await on.show("A leads and has copied 0-3; B is out of sync and holds 0 and 1")
    await on.stop(A)
    await on.restart(B)
    await on.nodes.until("B leads", lambda: on.leader == B)
    await on.produce("msg 4'", "msg 5'")
    on.roll()
    await on.produce("msg 6'")
    await on.nodes.until("B copies its segment", lambda: len(on.segments(B)) == 2)
    await on.copied(3)
    await on.settle()
    await on.show("A is down, B leads, has taken three records and copied 0-3 of its own history")
    await on.stop(B)
    # Only an election that knows nothing of B can choose A, which was not in the ISR.
    await on.restart(A)
    await on.nodes.until("A leads", lambda: on.leader == A)
    await on.produce("msg 7")
    on.roll()
    await on.produce("msg 8")
    await on.nodes.until("A copies its segment", lambda: len(on.segments(A)) == 3)
    await on.copied(5)
    await on.settle()
    await on.show("B is down, A leads without knowing B's records, has taken two and copied 4-5")
    on.show_lookups((0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (2, 2), (2, 3), (4, 5))
    await on.forget_local(A)
    await on.show("A has only 6 locally")
    await on.wipe(B)
    await on.restart(B)
    await on.settle()
    await on.show("B has come back with an empty disk, and builds on the segment that A copied")
    on.show_phases(B)
    await on.show_position(3, 2)


async def follower_to_leader(on: Stage) -> None:
    """The transition of 15.7: what the new leader still has to copy, found by its own epochs."""
    on.create(A, B)
    await on.produce("msg 0", "msg 1", "msg 2")
    on.log(A).roll()
    await on.settle()
    await on.new_epoch()
    await on.produce("msg 3")
    await on.settle()
    on.log(B).roll()
    await on.produce("msg 4")
    on.log(A).roll()
    await on.settle()
    await on.copied(4)
    await on.produce("msg 5")
    await on.new_epoch()
    await on.produce("msg 6")
    await on.settle()
    await on.show("A leads and has copied 0-2 and 3-4; B's segments end elsewhere: one of it is 4-6")
    await on.stop(A)
    await on.nodes.until("B leads", lambda: on.leader == B)
    on.roll()
    await on.produce("msg 7")
    await on.nodes.until("B copies its segment", lambda: len(on.segments(B)) == 3)
    await on.copied(6)
    await on.settle()
    await on.show("A has stopped: B leads and copies, from the segment on that holds the first offset not copied")
    on.show_lookups((0, 0), (1, 3), (1, 4), (1, 5), (2, 6))
    await on.forget_local(B)
    await on.show("local retention has deleted what is copied")
    await on.restart(A)
    await on.settle()
    await on.show("A is back as a follower")


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "1-new-empty-follower": partial(new_empty_follower, flag=False),
    "1-new-empty-follower-last-tiered": partial(new_empty_follower, flag=True),
    "2-out-of-sync-follower": out_of_sync_follower,
    "3-hard-failures": hard_failures,
    "4-unclean-election": unclean_election,
    "5-two-unclean-elections": two_unclean_elections,
    "6-follower-to-leader": follower_to_leader,
}


def transcript(name: str, overlap: str, folder: Path) -> str:
    """Plays a scenario; all that was seen."""

    async def run() -> list[str]:
        async with stage(folder, overlap) as on:
            await SCENARIOS[name](on)
            return on.lines

    return "\n".join([name, *asyncio.run(run()), ""])


def golden_path(name: str, overlap: str) -> Path:
    """The file with the transcript; one for both modes where they do not differ."""
    own = GOLDEN / f"{name}.{overlap}.txt"
    return own if own.exists() else GOLDEN / f"{name}.txt"


def write_all() -> None:
    """Writes every golden file again."""
    GOLDEN.mkdir(exist_ok=True)
    for name in SCENARIOS:
        texts = []
        for overlap in OVERLAPS:
            with tempfile.TemporaryDirectory() as folder:
                texts.append(transcript(name, overlap, Path(folder)))
        (GOLDEN / f"{name}.txt").write_text(texts[0])
        kafka = GOLDEN / f"{name}.kafka.txt"
        kafka.unlink(missing_ok=True)
        if texts[1] != texts[0]:
            kafka.write_text(texts[1])


if __name__ == "__main__":
    write_all()
