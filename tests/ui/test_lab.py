"""The Lab page: over a seeded database without an API, and with the API of a control plane that really runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from backend.control.lab.bootstrap.race_run import (
    BootstrapRun,
    LeaderLog,
    PhaseSeen,
    Position,
    Race,
    RaceStage,
    Racing,
    RunState,
)
from backend.store import tables as t
from tests.control.site import ControlSite
from tests.engine_cluster import CLUSTER_ID
from tests.ui.conftest import Database, html_of, open_page, text_of, viewer

BEGAN_MS = 1_700_000_000_000
LOG = LeaderLog(0, 100, 950, 1100, 1_000_000)


def lab_page(**options: Any) -> AppTest:
    page = open_page("lab", **options)
    assert not page.exception
    return page


def race(flag: bool, start: int, seconds: float, copied_bytes: int) -> Race:
    joined_ms = BEGAN_MS + round(seconds * 1000)
    positions = (Position(BEGAN_MS + 100, 0, start, start), Position(joined_ms, 0, start, 1100))
    phases = (
        PhaseSeen(BEGAN_MS + 50, "BUILDING_REMOTE_AUX", start, "offset 0 is remote only on broker 1"),
        PhaseSeen(joined_ms, "IN_SYNC", None, None),
    )
    return Race(flag, BEGAN_MS, joined_ms, seconds, start, 1100, copied_bytes, positions, phases)


def run(
    state: RunState, step: RaceStage, *races: Race, log: LeaderLog | None = LOG, racing: Racing | None = None
) -> BootstrapRun:
    ended_ms = None if state is RunState.RUNNING else BEGAN_MS + 60_000
    facts = ("ebbline.lab.bootstrap", 1, 3, 500_000, 1_100_000, log, races)
    return BootstrapRun(state, step, BEGAN_MS, ended_ms, 1_000_000, 85, *facts, racing=racing)


# --- without an API ---


def test_without_the_api_the_race_is_not_known_and_nothing_breaks(healthy: Database) -> None:
    page = lab_page()
    assert "? The race is not known: No control API is known here" in text_of(page)
    page.button(key="race-start").click().run()
    assert not page.exception
    assert "Nothing was changed. No control API is known here" in text_of(page)


def test_a_viewer_cannot_start_a_race(healthy: Database) -> None:
    page = lab_page(user=viewer())
    assert page.button(key="race-start").disabled
    assert page.button(key="race-cancel").disabled
    assert page.button(key="race-start").help == "Read-only: ask for the operator role."


def test_a_cluster_that_is_only_watched_has_no_lab(healthy: Database) -> None:
    healthy.change(t.cluster.update().values(kind="attached"))
    page = lab_page()
    assert "runs on an embedded cluster only. Start one with ebbline up" in text_of(page)
    assert "race-start" not in {button.key for button in page.button}


# --- with one ---


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    """One broker: enough for the page, too few for a race."""
    with ControlSite(tmp_path_factory.mktemp("lab"), brokers=1) as made:
        made.wait_until("the cluster was seen", lambda: made.get("/v1/cluster")["cluster"] is not None)
        # The page cannot request a fault that is not known to run.
        made.wait_until("it has told of itself", lambda: len(made.get("/v1/cluster")["processes"]) > 1)
        yield made


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "site" not in request.fixturenames:
        return
    site: ControlSite = request.getfixturevalue("site")
    monkeypatch.setenv("EBBLINE_DATABASE_URL", site.database_url)
    monkeypatch.setenv("EBBLINE_CLUSTER_ID", CLUSTER_ID)
    monkeypatch.setenv("EBBLINE_API_URL", f"http://127.0.0.1:{site.plane.port}")
    monkeypatch.setenv("EBBLINE_API_TOKEN_FILE", str(site.folder / "run" / "app.token"))
    site.plane.parts.bootstrap_lab.run = None


def test_a_refusal_of_the_api_is_told_in_its_own_words(site: ControlSite) -> None:
    page = lab_page()
    assert "No race was run since the backend's start." in text_of(page)
    page.button(key="race-start").click().run()
    assert "A race needs a second broker for the new replica" in text_of(page)
    page.button(key="race-cancel").click().run()
    shown = text_of(page)
    assert "No bootstrap race is running: there is nothing to cancel." in shown
    assert "second broker" not in shown


def test_each_scenario_says_what_to_watch_and_a_broken_one_can_be_healed(site: ControlSite) -> None:
    page = lab_page(scenario="stuck-copy")
    shown = text_of(page)
    assert "Open copies grow older than the p99" in shown
    assert "At the latest the lab mends it after 10 m" in shown
    assert page.button(key="fault-heal").disabled
    page.button(key="fault-break").click().run()
    site.wait_until("it is broken", lambda: site.get("/v1/lab/faults")["run"]["state"] == "broken")
    page.run()
    shown = text_of(page)
    assert "Broken. Stuck copy, by" in shown
    assert "Uploads of every broker are held back." in shown
    assert page.button(key="fault-break").help == "Something is broken already: heal it first."
    page.button(key="fault-heal").click().run()
    site.wait_until("it is healed", lambda: site.get("/v1/lab/faults")["run"]["state"] == "healed")
    assert "Healed. Stuck copy, by" in text_of(page.run())


def test_a_scenario_that_cannot_be_begun_says_why_and_a_viewer_sees_why_not(site: ControlSite) -> None:
    page = lab_page(scenario="broker-kill")
    page.button(key="fault-break").click().run()
    assert "needs brokers to spare: start ebbline up with --brokers 3." in text_of(page)
    watching = lab_page(user=viewer(), scenario="earthquake")
    assert watching.button(key="fault-break").disabled
    assert watching.button(key="fault-break").help == "Read-only: ask for the operator role."
    assert watching.toast[0].value == "There is no scenario 'earthquake'; this is the first."


def test_progress_is_told_while_the_topic_is_built(site: ControlSite) -> None:
    site.plane.parts.bootstrap_lab.run = run(RunState.RUNNING, RaceStage.TIERED, log=None)
    shown = text_of(lab_page())
    assert "Running: produce what is tiered and local, 500 kB of 1.1 MB." in shown
    assert shown.count("The topic is being built.") == 2


def test_a_replica_that_is_on_its_way_is_drawn_as_far_as_it_came(site: ControlSite) -> None:
    racing = Racing(True, BEGAN_MS, (Position(BEGAN_MS + 90, 0, 950, 1055),))
    joined = race(False, 100, 4.4, 1_000_000)
    site.plane.parts.bootstrap_lab.run = run(RunState.RUNNING, RaceStage.FLAG_ON, joined, racing=racing)
    shown = text_of(lab_page()).replace("\u202f", " ")
    assert "In sync after 4.40 s copied 1.0 MB" in shown
    assert "fetching · 70 %" in shown
    assert "45 to go" in shown
    assert "Flag on Log starts at 950 45 to go" in shown


def test_the_result_sets_both_replicas_side_by_side(site: ControlSite) -> None:
    races = (race(False, 100, 4.4, 1_000_000), race(True, 950, 0.7, 150_000))
    site.plane.parts.bootstrap_lab.run = run(RunState.DONE, RaceStage.CLEAN_UP, *races)
    page = lab_page()
    shown = text_of(page).replace("\u202f", " ")
    assert "With the flag on the replica copied 15 % of the bytes, in 0.70 s instead of 4.40 s." in shown
    assert "In sync after 0.70 s copied 150 kB" in shown
    assert "◆ 150 records local" in shown
    assert "0.050 s Flag on building remote aux to 950. offset 0 is remote only on broker 1" in shown
    assert "starts at 950 (earliest pending upload)" in shown
    assert "the new replica starts at 950." in html_of(page)
    lags = next(frame.value for frame in page.dataframe if "offsets behind" in frame.value.columns)
    assert list(lags["offsets behind"]) == [1000, 0, 150, 0]


def test_the_recorded_trace_is_stepped_through_and_the_step_is_in_the_link(site: ControlSite) -> None:
    races = (race(False, 100, 4.4, 1_000_000), race(True, 950, 0.7, 150_000))
    site.plane.parts.bootstrap_lab.run = run(RunState.DONE, RaceStage.CLEAN_UP, *races)
    page = lab_page()
    assert "8 steps recorded" in text_of(page)
    assert page.button(key="race-step").disabled
    page.button(key="race-reset").click().run()
    shown = text_of(page)
    assert "step 0 of 8" in shown
    assert shown.count("not there yet") == 2
    for _ in range(4):
        page.button(key="race-step").click().run()
    shown = text_of(page).replace("\u202f", " ")
    assert page.query_params["step"] in ("4", ["4"])
    assert "step 4 of 8 · 0.10 s" in shown
    assert shown.count("fetching · 0 %") == 2
    assert "1 000 to go" in shown
    page.button(key="race-pause").click().run()
    assert not page.exception
    assert "step" not in page.query_params
    assert "In sync after 0.70 s" in text_of(page)
    assert "step 8 of 8" in text_of(lab_page(step="99"))
    page = lab_page(step="<b>")
    assert page.toast[0].value == "There is no step '<b>'; this is all of the race."
