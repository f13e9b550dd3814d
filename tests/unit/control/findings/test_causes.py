"""One cause, one finding: what explains what, and what becomes of the explained when the cause ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from backend.control.alerts.notices import NoticeEvent, open_alerts, open_counts
from backend.control.alerts.receiver_queue import QueuePolicy, ReceiverQueue
from backend.control.findings.catalogue import SLUGS, FindingRule
from backend.control.findings.causes import CLUSTER_AWAY, EXPLANATIONS, NAMED_MAX, NOUNS, Silence, with_causes
from backend.control.findings.evaluate import (
    BROKERS_OUTLAST_MS,
    OBJECTS_MAX,
    OUTLASTS_MS,
    REPLICAS_OUTLAST_MS,
    Changes,
    candidates,
    compare,
    evaluate,
)
from backend.control.findings.finding_context import THROTTLED, Candidate, FindingContext
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries.findings import Finding
from tests.unit.control.findings.rule_cases import pipeline
from tests.unit.control.findings.sights import NOW_MS, broker, context, partition, stored


def candidate(slug: str, object_: str, severity: str = "warning", **more: object) -> Candidate:
    fields = {"sentence": f"{slug} of {object_}", "why": "It is so.", "action": "Do something.", **more}
    return Candidate(slug=slug, object=object_, severity=severity, **fields)  # type: ignore[arg-type]


AWAY = candidate("broker-away", "broker 3", broker_id=3)


def offline(number: int) -> Candidate:
    name = f"orders-{number}"
    return candidate(
        "offline", name, "critical", topic="orders", partition=number, depends_on=frozenset({3}), sentence=f"No: {name}"
    )


def stuck(number: int, broker_id: int = 1) -> Candidate:
    name = f"orders-{number} on broker {broker_id}"
    return candidate("follower-stuck", name, topic="orders", partition=number, broker_id=broker_id)


def raised(*given: Candidate) -> dict[tuple[str, str], Candidate]:
    return with_causes({c.key: c for c in given})


def rules_of(given: Iterable[Candidate]) -> list[FindingRule]:
    def rule(_: FindingContext) -> Iterable[Candidate]:
        return given

    return [rule]


def play(given: Iterable[Candidate], open_findings: Iterable[Finding] = ()) -> Changes:
    return evaluate(context(), open_findings, {}, rules_of(given))


def test_the_table_names_rules_that_there_are_and_has_a_noun_for_each_consequence() -> None:
    consequences = {slug for row in EXPLANATIONS if row.cause != CLUSTER_AWAY for slug in row.consequences}
    assert consequences == NOUNS.keys()
    assert {row.cause for row in EXPLANATIONS} | consequences <= SLUGS.keys()


def test_nothing_explains_itself_over_any_number_of_steps() -> None:
    edges = {(row.cause, slug) for row in EXPLANATIONS for slug in row.consequences}
    reach = set(edges)
    while more := {(a, d) for a, b in reach for c, d in edges if b == c} - reach:
        reach |= more
    assert [a for a, b in reach if a == b] == []


def test_a_dead_broker_is_one_finding_that_counts_what_it_explains_and_is_as_severe() -> None:
    result = raised(AWAY, offline(0), offline(1), stuck(0), stuck(7))
    assert {key for key, c in result.items() if c.cause is None} == {AWAY.key, stuck(7).key}
    # A follower waits for a leader that waits for the broker: the broker is the cause of both.
    assert result[stuck(0).key].cause == AWAY.key
    cause = result[AWAY.key]
    assert cause.severity == "critical"
    assert cause.why == "It is so. Explains 1 replica outside the ISR, 2 partitions without a leader."
    assert cause.facts["explains"]["by_slug"] == {"follower-stuck": 1, "offline": 2}


def test_a_partition_that_waits_for_another_broker_is_not_explained() -> None:
    other = replace(offline(0), depends_on=frozenset({1}))
    assert raised(AWAY, other)[other.key].cause is None


def test_of_ten_thousand_all_are_counted_and_ten_are_named() -> None:
    changes = play([AWAY, *(offline(number) for number in range(10_000))])
    [cause] = [c for c in changes.opened if c.cause is None]
    assert cause.facts["explains"]["count"] == 10_000
    assert len(cause.facts["explains"]["first"]) == NAMED_MAX
    assert len(changes.opened) == OBJECTS_MAX + 1


def test_what_got_no_row_may_end_with_its_cause_in_a_moment_as_well() -> None:
    many = [offline(number) for number in range(2 * OBJECTS_MAX)]
    begin = play([AWAY, *many])
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    assert len(begin.unlisted) == OBJECTS_MAX

    def after(ms: int, before: Changes) -> Changes:
        given = {c.key: c for c in many}
        return compare(given, rows, {}, NOW_MS, NOW_MS + ms, before.outlasting, unlisted=before.unlisted)

    at_once = after(0, begin)
    assert [(c.object, c.cause) for c in at_once.opened] == []
    later = after(OUTLASTS_MS, at_once)
    assert len(later.opened) == OBJECTS_MAX
    assert later.unlisted == {}


def test_of_too_many_those_without_a_cause_are_kept_first() -> None:
    alone = replace(offline(1), object="alone", depends_on=frozenset({1}))
    changes = play([AWAY, *(offline(number) for number in range(2, 1_000)), alone])
    assert alone.key in {c.key for c in changes.opened}


def sent(before: ReceiverQueue, findings: Iterable[Finding], changes: Changes) -> list[tuple[NoticeEvent, str]]:
    """Messages of a round to a receiver that takes everything at once."""
    alerts = open_alerts(findings, changes, {}, (), NOW_MS)
    before.update(alerts, alerts.open)
    messages = []
    while (delivery := before.next_delivery()) is not None:
        messages += [(notice.event, notice.slug) for notice in delivery.notices]
        before.mark_delivered(delivery)
    return messages


def test_one_notice_is_sent_for_the_cause_and_one_when_it_ends() -> None:
    receiver = ReceiverQueue(QueuePolicy())
    begin = play([AWAY, offline(0), offline(1)])
    assert sent(receiver, [], begin) == [(NoticeEvent.OPENED, "broker-away")]
    stored_rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    assert sent(receiver, stored_rows, play([], stored_rows)) == [(NoticeEvent.CLOSED, "broker-away")]


def test_what_outlasts_its_cause_is_a_finding_by_itself_then() -> None:
    receiver = ReceiverQueue(QueuePolicy())
    begin = play([AWAY, offline(0)])
    sent(receiver, [], begin)
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    at_once = play([offline(0)], rows)
    assert open_counts(open_alerts(rows, at_once, {}, (), NOW_MS)) == {}, "it may end with its cause in a moment"
    given, clock_ms = {offline(0).key: offline(0)}, NOW_MS + OUTLASTS_MS
    rows = [row for row in rows if row not in at_once.closed]
    almost = compare(given, rows, {}, clock_ms, clock_ms - 1, at_once.outlasting)
    assert open_counts(open_alerts(rows, almost, {}, (), NOW_MS)) == {}
    after = compare(given, rows, {}, clock_ms, clock_ms, almost.outlasting)
    assert open_counts(open_alerts(rows, after, {}, (), NOW_MS)) == {("offline", "critical"): 1}
    assert after.kept[0][1].cause is None
    assert sent(receiver, rows, after) == [(NoticeEvent.OPENED, "offline"), (NoticeEvent.CLOSED, "broker-away")]


def test_what_shows_in_a_whole_period_after_its_cause_has_ended_is_a_finding_at_once() -> None:
    """The store takes writes again and refuses reads still."""
    writes = candidate("copy-failing", "remote storage", "critical")
    reads = candidate("remote-read-failing", "old-0", "critical", topic="old", partition=0)
    begin = play([writes, reads])
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    at_once = play([reads], rows)
    rows = [row for row in rows if row not in at_once.closed]

    def after(ms: int, evidence_ms: int) -> Changes:
        given = {reads.key: replace(reads, evidence_ms=NOW_MS + evidence_ms)}
        return compare(given, rows, {}, NOW_MS + ms, NOW_MS + ms, at_once.outlasting)

    before = after(20_000, -5_000)
    assert open_counts(open_alerts(rows, before, {}, (), NOW_MS)) == {}, "it began before the store was mended"
    assert open_counts(open_alerts(rows, after(20_000, 5_000), {}, (), NOW_MS)) == {(reads.slug, "critical"): 1}
    set_back = after(20_000, 90_000)
    assert open_counts(open_alerts(rows, set_back, {}, (), NOW_MS)) == {}, "a wall clock that was set proves nothing"


def test_what_an_open_cause_explains_no_more_is_a_finding_at_once() -> None:
    """The metadata topic lacked a replica of a broker that is away, and then got a retention."""
    lacking = candidate("metadata-unsafe", "__remote_log_metadata", depends_on=frozenset({3}))
    begin = play([AWAY, lacking])
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    unsafe = replace(lacking, severity="critical", depends_on=frozenset())
    after = play([AWAY, unsafe], rows)
    counts = open_counts(open_alerts(rows, after, {}, (), NOW_MS))
    assert counts == {("broker-away", "warning"): 1, ("metadata-unsafe", "critical"): 1}


def test_a_broker_that_is_away_when_the_cluster_answers_again_is_a_finding_seconds_later() -> None:
    cluster = candidate(CLUSTER_AWAY, "cluster", "critical")
    begin = play([cluster, AWAY])
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    at_once = play([AWAY], rows)
    rows = [row for row in rows if row not in at_once.closed]
    clock_ms = NOW_MS + BROKERS_OUTLAST_MS
    after = compare({AWAY.key: AWAY}, rows, {}, clock_ms, clock_ms, at_once.outlasting)
    assert open_counts(open_alerts(rows, after, {}, (), NOW_MS)) == {("broker-away", AWAY.severity): 1}


def test_a_throttle_that_was_left_explains_a_follower_that_it_holds_back_and_no_lost_log() -> None:
    throttles = candidate("throttle-left", "orders", also_about=(("orders", 0), ("orders", 1)))
    held, lost = (replace(stuck(n), facts={"rule": rule}) for n, rule in enumerate((THROTTLED, "log-offline")))
    result = raised(throttles, held, lost)
    assert (result[held.key].cause, result[lost.key].cause) == (throttles.key, None)


def test_reads_that_fail_on_a_broker_that_is_away_are_no_fault_of_the_store() -> None:
    reads = candidate("remote-read-failing", "broker 3", "critical", broker_id=3)
    elsewhere = candidate("remote-read-failing", "broker 1", "critical", broker_id=1)
    result = raised(AWAY, reads, elsewhere)
    assert (result[reads.key].cause, result[elsewhere.key].cause) == (AWAY.key, None)


def test_what_was_notified_before_its_cause_was_seen_is_closed_with_the_opening_of_the_cause() -> None:
    receiver = ReceiverQueue(QueuePolicy())
    alone = play([offline(0)])
    assert sent(receiver, [], alone) == [(NoticeEvent.OPENED, "offline")]
    rows = [stored(alone.opened[0])]
    explained = play([AWAY, offline(0)], rows)
    assert open_counts(open_alerts(rows, explained, {}, (), NOW_MS)) == {("broker-away", "critical"): 1}
    assert explained.closed == []
    assert sent(receiver, rows, explained) == [(NoticeEvent.OPENED, "broker-away"), (NoticeEvent.CLOSED, "offline")]


MUTED_AWAY = replace(AWAY, object="broker 2", broker_id=2)
RIGHTS = candidate("rights-missing", "cluster", "critical")


def cause_of(given: Candidate, *others: Candidate, silence: Silence) -> object:
    return with_causes({c.key: c for c in (given, *others)}, silence)[given.key].cause


def test_a_partition_that_needs_two_brokers_goes_under_the_one_that_nobody_has_silenced() -> None:
    needs_both = replace(offline(0), depends_on=frozenset({2, 3}))
    assert cause_of(needs_both, MUTED_AWAY, AWAY, silence=Silence({MUTED_AWAY.key})) == AWAY.key
    below = candidate("below-min-isr", "orders-0", depends_on=frozenset({2, 3}))
    disk = candidate("disk-offline", "broker 3", broker_id=3)
    assert cause_of(below, MUTED_AWAY, disk, silence=Silence({MUTED_AWAY.key})) == disk.key, "of another kind"


def test_a_silenced_cause_takes_nothing_critical_with_it_that_nobody_has_silenced() -> None:
    silence = Silence({AWAY.key})
    assert cause_of(offline(0), AWAY, silence=silence) is None
    assert cause_of(offline(0), AWAY, silence=Silence({AWAY.key, offline(0).key})) == AWAY.key
    assert cause_of(replace(offline(0), severity="warning"), AWAY, silence=silence) == AWAY.key
    seen_by_whoever_muted_it = Silence({AWAY.key}, {offline(0).key: AWAY.key})
    assert cause_of(offline(0), AWAY, silence=seen_by_whoever_muted_it) == AWAY.key


def test_what_follows_from_a_critical_finding_that_stands_for_itself_goes_under_that() -> None:
    result = with_causes({c.key: c for c in (AWAY, offline(0), stuck(0))}, Silence({AWAY.key}))
    assert (result[offline(0).key].cause, result[stuck(0).key].cause) == (None, offline(0).key)
    assert result[AWAY.key].severity == "warning", "it is no graver than what it explains"


def test_a_partition_that_dies_in_the_maintenance_of_its_broker_is_notified() -> None:
    receiver = ReceiverQueue(QueuePolicy())
    given = {c.key: c for c in (AWAY, offline(0))}
    changes = compare(given, [], {}, NOW_MS, NOW_MS, withheld={AWAY.key})
    window = MaintenanceWindow(1, 0, NOW_MS + 1, None, None, 3, "new disks", 0, "ada")
    alerts = open_alerts([], changes, {}, [window], NOW_MS)
    assert open_counts(alerts) == {("offline", "critical"): 1}
    receiver.update(alerts, alerts.open)
    delivery = receiver.next_delivery()
    assert delivery is not None
    assert [notice.slug for notice in delivery.notices] == ["offline"]


def test_missing_rights_explain_nothing_that_a_rule_sees_now() -> None:
    failing = candidate("copy-failing", "store", "critical")
    slow = candidate("copy-slow", "orders-0", topic="orders", partition=0)
    result = raised(RIGHTS, failing, slow)
    assert (result[failing.key].cause, result[slow.key].cause) == (None, failing.key)
    assert raised(RIGHTS, slow)[slow.key].cause is None
    kept = replace(slow, unseen=True)
    assert raised(RIGHTS, kept)[kept.key].cause == RIGHTS.key
    pipeline = candidate("pipeline-down", "pipeline")
    assert raised(RIGHTS, pipeline)[pipeline.key].cause is None


def test_a_pipeline_that_waits_for_a_deleted_topic_is_no_second_matter() -> None:
    deleted = candidate("metadata-unsafe", "__remote_log_metadata", topic="__remote_log_metadata")
    waits = candidate("pipeline-down", "pipeline", topic="__remote_log_metadata")
    dead = candidate("pipeline-down", "pipeline")
    assert with_causes({c.key: c for c in (deleted, waits)})[waits.key].cause == deleted.key
    assert with_causes({c.key: c for c in (deleted, dead)})[dead.key].cause is None


def test_a_pipeline_that_reads_from_a_broker_that_hangs_is_behind_because_of_it() -> None:
    behind = pipeline(detail={"lag_ms": 20_000, "lag_records": 9}) | {
        "partitions": [partition("__remote_log_metadata")]
    }
    hangs = [broker(1), broker(2, reachable=False, error="It does not answer.")]
    key = ("pipeline-behind", "pipeline")
    assert with_causes(candidates(context(**behind, brokers=hangs)))[key].cause == ("broker-away", "broker 2")
    assert with_causes(candidates(context(**behind)))[key].cause is None


def test_what_ripens_just_after_its_cause_has_ended_is_explained_by_it() -> None:
    """Replicas of the metadata topic join the ISR some seconds after their broker, whose start took longer than the
    finding's hold.
    """
    unsafe = candidate("metadata-unsafe", "topic", depends_on=frozenset({3}), for_ms=20_000)
    receiver = ReceiverQueue(QueuePolicy())
    begin = play([AWAY, unsafe])
    assert [opened.slug for opened in begin.opened] == ["broker-away"]
    rows = [stored(c, number) for number, c in enumerate(begin.opened)]
    sent(receiver, [], begin)
    given, ripe_ms = {unsafe.key: unsafe}, NOW_MS + 20_000

    def judged(changes: Changes, rows: list[Finding], clock_ms: int) -> Changes:
        return compare(given, rows, changes.waiting, clock_ms, clock_ms, changes.outlasting, unlisted=changes.unlisted)

    ended = judged(begin, rows, ripe_ms - 1)
    assert (ended.opened, [closed.slug for closed in ended.closed]) == ([], ["broker-away"])
    assert sent(receiver, rows, ended) == [(NoticeEvent.CLOSED, "broker-away")]
    ripe = judged(ended, [], ripe_ms)
    assert [opened.cause for opened in ripe.opened] == [AWAY.key]
    assert sent(receiver, [], ripe) == []
    rows = [stored(c, number) for number, c in enumerate(ripe.opened)]
    alone = judged(ripe, rows, ripe_ms - 1 + REPLICAS_OUTLAST_MS)
    assert [kept.cause for _, kept in alone.kept] == [None]
    assert sent(receiver, rows, alone) == [(NoticeEvent.OPENED, "metadata-unsafe")]


def test_a_pipeline_that_may_not_read_is_behind_because_of_that_and_a_dead_one_is_not() -> None:
    may_not = {"missing_rights": (MissingRight("Read", "Topic __remote_log_metadata"),)}

    def causes_of(**more: Any) -> set[object]:
        given = with_causes(candidates(context(**pipeline(**more), **may_not)))
        return {c.cause for key, c in given.items() if key[1] == "pipeline"}

    lacks = {"lag_ms": 20_000, "lag_records": 9}
    assert causes_of(state="waiting", detail=lacks) == {("rights-missing", "cluster")}
    assert causes_of(state="stopped", detail=lacks) == {None}
