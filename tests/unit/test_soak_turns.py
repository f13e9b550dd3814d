"""Every part of the soak has its turn, and no run is longer than it may be."""

from __future__ import annotations

from tests.soak.turns import LastRun, last_run, parts_that_fit

RESULTS = [
    {"finished": "20261120", "tests": [{"test": "tests/a/test_x.py::test_1", "seconds": 100}]},
    {"finished": "20261121", "tests": [{"test": "tests/a/test_y.py::test_1", "seconds": 10}]},
    {"finished": "20261122", "tests": [{"test": "tests/a/test_x.py::test_1", "seconds": 5, "run": "with the tier"}]},
]


def test_a_part_is_as_old_as_its_newest_result_and_takes_what_it_ever_took() -> None:
    assert last_run("tests/a", RESULTS) == LastRun("20261121", 130.0)
    assert last_run("tests/a/test_x.py", RESULTS) == LastRun("20261120", 130.0)
    assert last_run("with the tier", RESULTS) == LastRun("20261122", 6.5)
    assert last_run("tests/b", RESULTS).finished == ""


def test_all_parts_have_their_turn_in_as_few_runs_as_their_time_allows() -> None:
    parts = {"slow": 50.0, "new": 20.0, "old": 40.0, "quick": 2.0, "huge": 500.0}
    last_runs = {part: LastRun(f"day {number}", seconds) for number, (part, seconds) in enumerate(parts.items())}
    turns = []
    for run in range(4):
        chosen = parts_that_fit(list(parts), {"old"}, last_runs, workers=2, budget_s=60.0)
        turns.append(chosen)
        last_runs |= {part: LastRun(f"later {run}", parts[part]) for part in chosen}
    assert turns[0] == ["slow", "new", "quick"]  # 25 and 10 with two workers; 40 of what runs alone do not fit
    assert turns[1] == ["new", "old", "quick"]
    assert turns[2] == ["huge"]  # longer than a run may be: by itself
    assert set().union(*turns) == set(parts)
