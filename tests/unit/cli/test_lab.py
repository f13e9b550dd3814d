"""The words of `ebbline lab bootstrap`: what it takes, and what it prints."""

from __future__ import annotations

import io

import pytest
import typer
from rich.console import Console

from backend.cli.lab import comparison, percent, progress_lines, result_lines, size_bytes

RACE = {
    "flag": False, "began_ms": 1_000, "joined_ms": 5_400, "seconds": 4.4, "start_offset": 100, "log_end": 1100,
    "copied_bytes": 1_000_000, "positions": [],
    "phases": [{"at_ms": 1_250, "phase": "BUILDING_REMOTE_AUX", "target_offset": 100, "reason": "offset 0 is remote"}],
}  # fmt: skip
LOG = {"log_start": 0, "local_start": 100, "pending_upload": 950, "log_end": 1100, "local_bytes": 1_000_000}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GB", 2_000_000_000), ("500 MB", 500_000_000), ("64MiB", 64 << 20), ("1.5g", 1_500_000_000),
        ("30000000", 30_000_000), ("100kb", 100_000),
    ],
)  # fmt: skip
def test_sizes_are_taken_as_people_write_them(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "much", "-5GB", "2 TB", "2GBs"])
def test_what_is_no_size_is_refused_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        size_bytes(text)
    assert caught.value.exit_code == 2
    assert "is no size" in capsys.readouterr().err


def test_a_share_is_taken_with_and_without_its_sign() -> None:
    assert (percent("85%"), percent("85"), percent(" 5 % ")) == (85, 85, 5)
    for text in ("", "%", "-1", "0.85", "1000"):
        with pytest.raises(typer.Exit):
            percent(text)


def steps(*names: str) -> list[dict[str, object]]:
    return [{"at_ms": 1_000 + number, "step": name} for number, name in enumerate(names)]


def test_progress_tells_the_step_and_how_much_is_produced() -> None:
    head = "produce the beginning"
    run = {"state": "running", "step": head, "steps": steps(head), "produced_bytes": 33, "total_bytes": 100}
    assert list(progress_lines(None, run)) == [f"{head} …", f"{head} … 30 % of 100 B"]
    assert list(progress_lines(run, run | {"produced_bytes": 39})) == []
    assert list(progress_lines(run, run | {"produced_bytes": 40})) == [f"{head} … 40 % of 100 B"]
    copying = run | {"step": "copy it", "steps": steps(head, "copy it"), "produced_bytes": 100}
    assert list(progress_lines(run, copying)) == ["copy it …"]


def test_steps_that_were_over_before_anyone_asked_are_told() -> None:
    run = {"state": "running", "step": "a", "steps": steps("a"), "produced_bytes": 0, "total_bytes": 100}
    done = run | {"state": "done", "step": "d", "steps": steps("a", "b", "c", "d")}
    assert list(progress_lines(run, done)) == ["b …", "c …", "d …", "done."]
    assert list(progress_lines(done, done)) == ["done."]


def test_the_result_sets_both_replicas_side_by_side() -> None:
    on = RACE | {"flag": True, "seconds": 0.7, "start_offset": 950, "copied_bytes": 146_000}
    assert comparison(RACE, on) == (
        "With the flag on the replica copied 15 % of the bytes in 0.70 s instead of 4.40 s,"
        " and has 150 of 1000 local records."
    )
    console = Console(width=200, file=io.StringIO(), record=True)
    for line in result_lines({"leader": 1, "leader_log": LOG, "races": [RACE, on]}):
        console.print(line)
    text = console.export_text()
    assert "local from 100 (1.0 MB), first not tiered 950" in text
    assert "146 kB" in text
    assert text.count("BUILDING_REMOTE_AUX") == 2
    assert "0.250 s" in text


def test_a_race_that_failed_early_has_nothing_to_show() -> None:
    assert list(result_lines({"leader": 1, "leader_log": None, "races": []})) == []
