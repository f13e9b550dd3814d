"""The judge on hand-made records: all that is missed, late, false, said or sent wrongly is named, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.incidents.expectations import CRITICAL, NOTICE, WARNING, Allowed, Expected, Incident
from tests.incidents.judge import judge
from tests.incidents.steps import before, breaks, mends
from tests.incidents.timeline import CommandRead, FindingsRead, SeenFinding, SentNotice, StepRun, Timeline

BROKE_S, MENDING_S, MENDED_S, END_S = 10.0, 40.0, 45.0, 70.0
AWAY = SeenFinding(
    slug="broker-away",
    object="broker 2",
    severity=WARNING,
    sentence="Broker 2 does not answer",
    why="For 4 s. All 12 partitions it led are led.",
    action="Start it again.",
)
STUCK = SeenFinding(slug="follower-stuck", object="a-0 on broker 2", severity=CRITICAL, cause=AWAY.key)
EXPECTED = Expected(
    slug="broker-away",
    objects=("broker 2",),
    severity=WARNING,
    says=("broker 2", "not answer", "12"),
    action=("start|restart",),
    never=("unclean",),
    within_s=5,
    cleared_within_s=10,
)
STEPS = (
    before("kill", broker=1),
    breaks("kill", broker=2),
    mends("start", label="started", broker=2),
)
INCIDENT = Incident(name="killed", title="A broker is killed", steps=STEPS, expected=(EXPECTED,))
RUNS = (
    StepRun(STEPS[0], 1.0, 2.0),
    StepRun(STEPS[1], BROKE_S, BROKE_S + 0.1),
    StepRun(STEPS[2], MENDING_S, MENDED_S),
)


def reads(*shown: tuple[SeenFinding, float, float]) -> tuple[FindingsRead, ...]:
    """A read each half second; each finding is open from its first time to before its second."""
    times = [at / 2 for at in range(int(2 * END_S))]
    return tuple(
        FindingsRead(at_s, tuple(finding for finding, from_s, until_s in shown if from_s <= at_s < until_s))
        for at_s in times
    )


def notices(*events: str, finding: SeenFinding = AWAY) -> tuple[SentNotice, ...]:
    return tuple(
        SentNotice(BROKE_S + number, event, finding.slug, finding.object) for number, event in enumerate(events)
    )


def played(*shown: tuple[SeenFinding, float, float]) -> Timeline:
    return Timeline(steps=RUNS, reads=reads(*shown), notices=notices("opened", "closed"))


RIGHT = played((AWAY, 13.0, 50.0), (STUCK, 15.0, 48.0))


def complaints(timeline: Timeline, incident: Incident = INCIDENT) -> Sequence[str]:
    return judge(incident, timeline).complaints


def test_what_is_told_in_time_and_closes_in_time_passes() -> None:
    verdict = judge(INCIDENT, RIGHT)
    assert verdict.passed, verdict
    assert (verdict.recall, verdict.false_findings, verdict.right_action) == (1.0, (), True)
    assert verdict.seconds == {"broker-away broker 2": 3.0}
    assert verdict.cleared_s == {"broker-away broker 2": 5.0}
    assert (verdict.notices, verdict.notices_expected) == (2, 2)


@pytest.mark.parametrize("changed", [{"cleared_within_s": None}, {"ends_by_itself": True}])
def test_an_action_that_nobody_has_carried_out_is_neither_right_nor_wrong(changed: dict[str, Any]) -> None:
    stays = replace(INCIDENT, expected=(replace(EXPECTED, **changed),))
    assert judge(stays, RIGHT).right_action is None
    losing = replace(stays, expected=(replace(stays.expected[0], never=("again",)),))
    assert judge(losing, RIGHT).right_action is False, "it says what must not be done"
    assert judge(stays, replace(RIGHT, missing_records=3)).right_action is False
    both = replace(INCIDENT, expected=(EXPECTED, replace(stays.expected[0], objects=("broker 3",))))
    other = replace(AWAY, object="broker 3", sentence="Broker 3 does not answer; broker 2 neither")
    assert judge(both, played((AWAY, 13.0, 50.0), (other, 13.0, 50.0))).right_action is True


def test_what_never_comes_is_missed_and_its_action_is_not_right() -> None:
    verdict = judge(INCIDENT, replace(RIGHT, reads=reads(), notices=()))
    assert (verdict.missed, verdict.recall) == (("broker-away broker 2",), 0.0)
    assert verdict.right_action is False
    assert not verdict.passed


def test_what_comes_before_the_clock_runs_does_not_count() -> None:
    assert judge(INCIDENT, played((AWAY, 2.0, 9.0))).missed == ("broker-away broker 2",)


@pytest.mark.parametrize(
    ("from_s", "until_s", "complaint"),
    [
        (15.5, 50.0, "came after 5.5 s, not within 5 s"),
        (13.0, 56.0, "closed after 11.0 s, not within 10 s"),
        (13.0, END_S, "is still open at the end"),
        (13.0, 30.0, "closed 10.0 s before its cause ended"),
    ],
)
def test_a_wrong_time_is_named(from_s: float, until_s: float, complaint: str) -> None:
    (result,) = complaints(played((AWAY, from_s, until_s)))
    assert complaint in result


def test_times_count_from_labelled_steps() -> None:
    late = played((AWAY, 44.0, 60.0))
    assert any("after 34.0 s" in text for text in complaints(late))
    labelled = replace(INCIDENT, expected=(replace(EXPECTED, since="started", cleared_within_s=None),))
    verdict = judge(labelled, replace(late, notices=notices("opened")))
    assert verdict.seconds == {"broker-away broker 2": 4.0}
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("shown", "because"),
    [
        (SeenFinding(slug="divergence", object="a-0 on broker 1", severity=CRITICAL), "nobody expects it"),
        (SeenFinding(slug="broker-away", object="broker 3", severity=WARNING), "nobody expects it"),
        (replace(STUCK, cause=None), "nobody expects it"),
        (replace(STUCK, slug="divergence"), "broker-away does not explain it"),
        (replace(STUCK, cause=("broker-away", "broker 3")), "its cause, broker-away broker 3, is not open"),
        (replace(AWAY, cause=("cluster-away", "cluster")), "its cause, cluster-away cluster, is not open"),
    ],
)
def test_everything_else_is_false(shown: SeenFinding, because: str) -> None:
    verdict = judge(INCIDENT, played((AWAY, 13.0, 50.0), (shown, 20.0, 25.0)))
    assert [(false.slug, false.object, false.because) for false in verdict.false_findings] == [
        (shown.slug, shown.object, because)
    ]
    assert verdict.false_criticals == (shown.severity == CRITICAL)
    assert not verdict.passed


def test_a_false_cause_explains_nothing() -> None:
    cause = SeenFinding(slug="cluster-away", object="cluster", severity=CRITICAL)
    under = SeenFinding(slug="copy-slow", object="a-0", severity=WARNING, cause=cause.key)
    verdict = judge(INCIDENT, played((AWAY, 13.0, 50.0), (cause, 20.0, 25.0), (under, 20.0, 25.0)))
    assert {false.slug for false in verdict.false_findings} == {"cluster-away", "copy-slow"}


def test_one_cause_is_one_finding() -> None:
    store = replace(EXPECTED, slug="copy-failing", objects=("remote storage|broker *",), says=(), action=())
    incident = replace(INCIDENT, expected=(store,))
    both = [SeenFinding(slug="copy-failing", object=f"broker {broker}", severity=WARNING) for broker in (1, 2)]
    verdict = judge(incident, played(*((finding, 12.0, 50.0) for finding in both)))
    assert [str(false) for false in verdict.false_findings] == [
        "copy-failing broker 2 (warning): a second finding beside copy-failing broker 1"
    ]


def test_a_finding_that_flaps_is_false() -> None:
    verdict = judge(INCIDENT, played((AWAY, 12.0, 20.0), (AWAY, 22.0, 50.0)))
    assert [false.because for false in verdict.false_findings] == ["it opened 2 times"]


def test_a_finding_under_a_cause_may_come_and_go() -> None:
    assert judge(INCIDENT, played((AWAY, 13.0, 50.0), (STUCK, 15.0, 20.0), (STUCK, 25.0, 30.0))).passed


def test_a_backend_that_is_gone_has_to_send_nothing() -> None:
    silent = replace(INCIDENT, expected=(replace(EXPECTED, sends=False),))
    quiet = replace(RIGHT, notices=(), beats=(2.0, 9.0, 50.0))
    assert judge(silent, quiet).passed
    assert not judge(silent, replace(RIGHT, beats=quiet.beats)).passed


def test_the_heartbeat_stops_with_the_backend() -> None:
    silent = replace(INCIDENT, expected=(replace(EXPECTED, sends=False),))
    quiet = replace(RIGHT, notices=())
    assert complaints(quiet, silent) == ("no heartbeat came, so none can stop",)
    assert complaints(replace(quiet, beats=(9.0, 20.0, 30.0)), silent) == ("the heartbeat went on: 2 came",)
    assert judge(INCIDENT, RIGHT).passed, "an incident in which notices can be sent needs no heartbeat"


def test_allowed_findings_may_come_but_not_worse_and_not_twice() -> None:
    allowed = Allowed(slug="copy-*", objects=("a-*",), severity=NOTICE, because="a test")
    incident = replace(INCIDENT, allowed=(allowed,))
    dangling = SeenFinding(slug="copy-dangling", object="a-0", severity=NOTICE)
    assert judge(incident, played((AWAY, 13.0, 50.0), (dangling, 14.0, 60.0))).passed
    worse = judge(incident, played((AWAY, 13.0, 50.0), (replace(dangling, severity=WARNING), 14.0, 60.0)))
    assert [false.because for false in worse.false_findings] == ["notice at worst is right"]
    twice = judge(incident, played((AWAY, 13.0, 50.0), (dangling, 14.0, 16.0), (dangling, 20.0, 22.0)))
    assert [false.because for false in twice.false_findings] == ["it opened 2 times"]
    often = replace(incident, allowed=(replace(allowed, times=2),))
    assert judge(often, played((AWAY, 13.0, 50.0), (dangling, 14.0, 16.0), (dangling, 20.0, 22.0))).passed


def test_an_expected_finding_under_a_cause_must_stand_there() -> None:
    under = Expected(
        slug="follower-stuck",
        objects=("a-0 on broker 2",),
        severity=CRITICAL,
        says=(),
        action=(),
        within_s=10,
        under="broker-away",
    )
    incident = replace(INCIDENT, expected=(EXPECTED, under))
    assert judge(incident, RIGHT).passed
    aside = replace(STUCK, cause=("offline", "a-0"))
    other = Allowed(slug="offline", severity=CRITICAL, because="a test")
    cause = SeenFinding(slug="offline", object="a-0", severity=CRITICAL)
    elsewhere = judge(
        replace(incident, allowed=(other,)), played((AWAY, 13.0, 50.0), (cause, 13.0, 50.0), (aside, 15.0, 48.0))
    )
    assert elsewhere.missed == ("follower-stuck a-0 on broker 2",)
    noisy = replace(RIGHT, notices=RIGHT.notices + notices("opened", finding=STUCK))
    (complaint,) = complaints(noisy, incident)
    assert complaint == "notices of follower-stuck a-0 on broker 2: 1 opened instead of none"
    by_itself = judge(incident, played((AWAY, 13.0, 50.0), (replace(STUCK, cause=None), 15.0, 48.0)))
    assert by_itself.missed == ("follower-stuck a-0 on broker 2",)
    assert [false.slug for false in by_itself.false_findings] == ["follower-stuck"]


@pytest.mark.parametrize(
    ("first", "later", "at_worst", "expected"),
    [
        (WARNING, WARNING, "", []),
        (CRITICAL, CRITICAL, "", ["opened as critical, not as warning", "was critical at worst, not warning"]),
        (WARNING, CRITICAL, "", ["was critical at worst, not warning"]),
        (WARNING, WARNING, CRITICAL, ["was warning at worst, not critical"]),
    ],
)
def test_a_wrong_severity_is_named(first: str, later: str, at_worst: str, expected: list[str]) -> None:
    incident = replace(INCIDENT, expected=(replace(EXPECTED, at_worst=at_worst),))
    shown = ((replace(AWAY, severity=first), 13.0, 20.0), (replace(AWAY, severity=later), 20.0, 50.0))
    texts = [
        text
        for text in complaints(played(*shown), incident)
        if "severity" in text or "worst" in text or "opened" in text
    ]
    texts = [text for text in texts if not text.startswith("notices")]
    assert [text.removeprefix("broker-away broker 2 ") for text in texts] == expected


def test_a_change_of_severity_that_is_right_is_one_more_notice() -> None:
    incident = replace(INCIDENT, expected=(replace(EXPECTED, at_worst=CRITICAL),))
    shown = played((AWAY, 13.0, 20.0), (replace(AWAY, severity=CRITICAL), 20.0, 50.0))
    commands = (CommandRead(30.0, 1),)
    verdict = judge(incident, replace(shown, notices=notices("opened", "changed", "closed"), commands=commands))
    assert verdict.passed, verdict


def test_words_are_read_when_the_finding_has_settled_and_bad_advice_at_any_time() -> None:
    early = replace(AWAY, why="", action="Elect a leader uncleanly: an unclean election.")
    (result,) = complaints(played((early, 13.0, 16.0), (AWAY, 16.0, 50.0)))
    assert "its action says unclean" in result
    assert judge(INCIDENT, played((early, 13.0, 16.0), (AWAY, 16.0, 50.0))).right_action is False
    lacks = complaints(played((replace(AWAY, why="", action="Wait."), 13.0, 50.0)))
    assert any("does not say 12" in text for text in lacks)
    assert any("lacks start|restart" in text for text in lacks)


@pytest.mark.parametrize(
    ("action", "right"),
    [
        ("Start it again; an unclean election may lose records.", True),
        ("Start it again. Never elect uncleanly.", True),
        ("Start it again. Do not let anybody run an unclean election.", True),
        ("Start it again, or elect uncleanly.", False),
        ("Wait; nothing is lost. Run an unclean election, then start it.", False),
    ],
)
def test_a_warning_is_no_advice(action: str, right: bool) -> None:
    assert judge(INCIDENT, played((replace(AWAY, action=action), 13.0, 50.0))).passed is right


def test_what_a_finding_says_while_it_is_mended_is_not_judged() -> None:
    assert judge(INCIDENT, played((AWAY, 13.0, 42.0), (replace(AWAY, why="", action=""), 42.0, 50.0))).passed


def test_an_action_that_does_not_end_the_finding_in_time_is_not_right() -> None:
    assert judge(INCIDENT, played((AWAY, 13.0, 60.0))).right_action is False


def test_a_number_is_a_whole_number() -> None:
    for why in ("3 of 112 partitions.", "For 12.5 s.", "1,412 records."):
        assert any("does not say 12" in text for text in complaints(played((replace(AWAY, why=why), 13.0, 50.0))))
    assert judge(INCIDENT, played((replace(AWAY, why="It led 12."), 13.0, 50.0))).passed


def test_facts_of_steps_stand_in_objects_and_words() -> None:
    expected = replace(EXPECTED, objects=("broker {quorum}",), says=("broker {quorum}",))
    incident = replace(INCIDENT, expected=(expected,))
    assert judge(incident, replace(RIGHT, names={"quorum": "2"})).passed
    assert judge(incident, replace(RIGHT, names={"quorum": "3"})).missed
    assert judge(incident, RIGHT).missed


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (notices("opened"), "1 opened instead of 1 closed, 1 opened"),
        (notices("opened", "opened", "closed"), "1 closed, 2 opened instead of"),
        (notices("opened", "changed", "closed"), "1 changed, 1 closed, 1 opened instead of"),
        (
            notices("opened", "closed") + notices("opened", finding=STUCK),
            "notices that nobody expects: follower-stuck a-0 on broker 2, 1 opened",
        ),
    ],
)
def test_each_cause_sends_two_notices_and_nothing_else_sends_any(sent: tuple[SentNotice, ...], complaint: str) -> None:
    (result,) = complaints(replace(RIGHT, notices=sent))
    assert complaint in result


def test_a_cause_that_ends_and_comes_back_may_open_as_often_as_is_right() -> None:
    shown = played((AWAY, 13.0, 20.0), (AWAY, 25.0, 50.0))
    twice = replace(shown, notices=notices("opened", "closed", "opened", "closed"))
    assert not judge(INCIDENT, twice).passed
    coming_and_going = replace(INCIDENT, expected=(replace(INCIDENT.expected[0], opens=2),))
    assert judge(coming_and_going, twice).passed
    assert judge(coming_and_going, RIGHT).passed
    missing_end = replace(twice, notices=notices("opened", "closed", "opened"))
    assert not judge(coming_and_going, missing_end).passed


def test_notices_from_before_the_clock_runs_are_not_counted() -> None:
    early = SentNotice(5.0, "closed", "broker-away", "broker 1")
    assert judge(INCIDENT, replace(RIGHT, notices=(early, *RIGHT.notices))).passed


def test_a_finding_that_is_allowed_may_send_its_two() -> None:
    quiet = Incident(
        name="restart",
        title="",
        steps=STEPS[1:2],
        allowed=(Allowed(slug="broker-away", objects=("broker *",), because="a test"),),
    )
    shown = Timeline(steps=RUNS[1:2], reads=reads((AWAY, 12.0, 20.0)), notices=notices("opened", "closed"))
    assert judge(quiet, shown).passed
    assert judge(quiet, shown).right_action is None
    (result,) = complaints(replace(shown, notices=notices("opened", "closed", "opened")), quiet)
    assert "more than 1 of a kind" in result


@pytest.mark.parametrize(
    ("severity", "slug", "code", "right"),
    [
        (WARNING, "broker-away", 0, True),
        (WARNING, "broker-away", 1, False),
        (CRITICAL, "cluster-away", 1, True),
        (CRITICAL, "cluster-away", 0, False),
        (CRITICAL, "backend-down", 3, True),
        (CRITICAL, "backend-down", 0, False),
        (CRITICAL, "database-away", 1, True),
        (CRITICAL, "database-away", 3, True),
        (CRITICAL, "database-away", 0, False),
        ("warning|critical", "database-lost", 0, True),
        ("warning|critical", "database-lost", 1, True),
        ("warning|critical", "database-lost", 3, False),
    ],
)
def test_status_ends_with_the_right_code(severity: str, slug: str, code: int, right: bool) -> None:
    finding = replace(AWAY, slug=slug, severity=severity.partition("|")[0])
    incident = replace(INCIDENT, expected=(replace(EXPECTED, slug=slug, severity=severity),))
    shown = replace(
        played((finding, 13.0, 50.0)),
        notices=notices("opened", "closed", finding=finding),
        # One from before it was found, and one from after it was mended.
        commands=(CommandRead(11.0, 7), CommandRead(30.0, code), CommandRead(50.0, 7)),
    )
    assert judge(incident, shown).passed is right


def test_status_must_not_say_that_all_is_well() -> None:
    text = "3 brokers\nNothing needs attention."
    (result,) = complaints(replace(RIGHT, commands=(CommandRead(30.0, 0, text),)))
    assert "Nothing needs attention" in result


def test_an_incident_that_nothing_is_expected_of_ends_status_with_0_each_time() -> None:
    quiet = Incident(name="quiet", title="", steps=STEPS[1:2])
    # The first is from before the clock runs.
    commands = (CommandRead(2.0, 1), CommandRead(20.0, 1), CommandRead(30.0, 0))
    shown = Timeline(steps=RUNS[1:2], reads=reads(), commands=commands)
    assert len(complaints(shown, quiet)) == 1
    assert judge(quiet, replace(shown, commands=(CommandRead(20.0, 0, "Nothing needs attention."),))).passed


def test_records_that_are_gone_make_no_action_right() -> None:
    verdict = judge(INCIDENT, replace(RIGHT, missing_records=3))
    assert (verdict.right_action, verdict.complaints) == (False, ("3 acknowledged records are gone",))
    assert judge(replace(INCIDENT, loses=True), replace(RIGHT, missing_records=3)).passed


def test_groups_that_read_must_be_listed() -> None:
    incident = replace(INCIDENT, readers=("flink-job",))
    assert complaints(RIGHT, incident) == ("`ebbline readers` lists no flink-job",)
    assert judge(incident, replace(RIGHT, readers=frozenset({"flink-job"}))).passed
