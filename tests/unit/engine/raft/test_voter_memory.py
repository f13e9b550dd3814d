"""The judgement of a voter's folder at a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.engine.ports.disk import OsDisk
from backend.engine.raft.acknowledged import Acknowledged, AcknowledgedFiles
from backend.engine.raft.quorum_state import QuorumState, VoterStanding, decode_quorum_state, encode_quorum_state
from backend.engine.raft.raft_state import LogEnd
from backend.engine.raft.voter_memory import (
    MetadataLost,
    Traces,
    VoterMemory,
    judge,
    judge_only_voter,
    read_quorum_state,
    set_damaged_aside,
)

OLD, FRESH, KEPT = (name * 16 for name in (b"o", b"f", b"k"))
END = LogEnd(5, 100)
EMPTY = LogEnd(0, 0)
STATE = QuorumState(leader_id=2, leader_epoch=5, voted_id=2, voters=(1, 2, 3))


def judge_stored(
    stored: QuorumState | None, end: LogEnd, traces: Traces | None = None, damage: str | None = None
) -> VoterMemory:
    return judge(stored, damage, end, traces or Traces(), directory_id=OLD, fresh_directory_id=FRESH)


def test_a_folder_of_an_earlier_version_is_a_member_by_its_log_directory() -> None:
    assert judge_stored(STATE, END) == VoterMemory(
        QuorumState(2, 5, 2, (1, 2, 3), directory_id=OLD, standing=VoterStanding.MEMBER), None
    )


def test_an_empty_folder_without_traces_may_make_a_quorum() -> None:
    memory = judge_stored(None, EMPTY)
    assert (memory.state.standing, memory.state.directory_id, memory.lost) == (VoterStanding.FORMING, FRESH, None)


@pytest.mark.parametrize(
    ("stored", "end", "traces", "damage", "said"),
    [
        (None, EMPTY, Traces(partitions=True), None, "is empty"),
        (None, EMPTY, Traces(broker_epoch=7), None, "is empty"),
        (None, EMPTY, Traces(Acknowledged(EMPTY, 1)), None, "has no quorum-state"),
        (STATE, EMPTY, Traces(Acknowledged(END, 5)), None, "is empty"),
        (None, END, Traces(), None, "has no quorum-state"),
        (None, END, Traces(), "it cannot be read: x", "damaged (it cannot be read: x)"),
        (STATE, END, Traces(Acknowledged(LogEnd(5, 101), 5)), None, "ends at offset 100 of epoch 5"),
        (STATE, LogEnd(4, 900), Traces(Acknowledged(LogEnd(5, 101), 5)), None, "it is an older copy"),
        (STATE, END, Traces(Acknowledged(END, 6)), None, "is of epoch 5, but this node has taken part in epoch 6"),
        (STATE, END, Traces(broker_epoch=100), None, "was registered at offset 100"),
    ],
)
def test_what_was_forgotten_is_noticed_and_the_voter_gets_another_directory(
    stored: QuorumState | None, end: LogEnd, traces: Traces, damage: str | None, said: str
) -> None:
    memory = judge_stored(stored, end, traces, damage)
    assert said in str(memory.lost)
    assert (memory.state.standing, memory.state.directory_id) == (VoterStanding.CATCHING_UP, FRESH)
    assert (memory.state.voted_id, memory.state.leader_id) == (-1, -1)
    assert memory.state.leader_epoch >= end.epoch


def test_what_fits_is_no_loss() -> None:
    for traces in (Traces(Acknowledged(END, 5), 99, True), Traces(Acknowledged(LogEnd(4, 900), 2))):
        assert judge_stored(STATE, END, traces).lost is None


def test_a_voter_that_was_catching_up_goes_on_by_the_same_directory() -> None:
    for standing in (VoterStanding.CATCHING_UP, VoterStanding.FORMING):
        stored = QuorumState(directory_id=KEPT, standing=standing)
        memory = judge_stored(stored, END)
        assert (memory.state.standing, memory.state.directory_id) == (VoterStanding.CATCHING_UP, KEPT)


def test_an_only_voter_is_refused_when_its_log_is_not_what_it_was() -> None:
    for end, traces in ((EMPTY, Traces(partitions=True)), (END, Traces(Acknowledged(LogEnd(5, 101), 5)))):
        with pytest.raises(MetadataLost, match="put that folder back"):
            judge_only_voter(STATE, end, traces, "/data/__cluster_metadata-0")
    assert judge_only_voter(None, END, Traces(Acknowledged(END, 8)), "f").leader_epoch == 8
    assert judge_only_voter(STATE, END, Traces(), "f") == STATE
    assert judge_only_voter(None, EMPTY, Traces(), "f") == QuorumState()


def test_a_damaged_quorum_state_is_kept_aside(tmp_path: Path) -> None:
    disk, folder = OsDisk(), str(tmp_path)
    assert read_quorum_state(disk, folder) == (None, None)
    (tmp_path / "quorum-state").write_bytes(b"\x00garbage")
    state, damage = read_quorum_state(disk, folder)
    assert state is None
    assert "cannot be read" in str(damage)
    assert Path(set_damaged_aside(disk, folder, 7)).read_bytes() == b"\x00garbage"
    assert read_quorum_state(disk, folder) == (None, None)


def test_kafkas_file_carries_our_fields_and_is_read_without_them() -> None:
    quorum_state = QuorumState(2, 5, 2, (1, 2, 3), KEPT, VoterStanding.CATCHING_UP)
    assert decode_quorum_state(encode_quorum_state(quorum_state)) == quorum_state
    assert b"directoryId" not in encode_quorum_state(STATE)
    assert decode_quorum_state(encode_quorum_state(STATE)) == STATE


def test_the_most_that_any_note_tells_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [tmp_path / name for name in ("one", "two", "away/three")]
    files = AcknowledgedFiles(OsDisk(), map(str, paths))
    assert files.read() is None
    files.write(Acknowledged(END, 5))
    files.write(Acknowledged(END, 6))
    assert caplog.text.count("cannot be written") == 1
    AcknowledgedFiles(OsDisk(), [str(paths[0])]).write(Acknowledged(LogEnd(5, 90), 9))
    assert files.read() == Acknowledged(END, 9)
    paths[1].write_bytes(b"{}")
    assert files.read() == Acknowledged(LogEnd(5, 90), 9)
    assert "is not used" in caplog.text
