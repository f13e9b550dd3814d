"""The conclusions of the Config page from rows: levels, estimate, settings that differ, Kafka's rules of retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.components.config import bootstrap_picture, config_matrix, config_table
from app.components.config.config_matrix import BROKER, CLUSTER, DEFAULT, FILE, FLAG, BrokerFlag
from app.components.plan import plan_text
from app.components.shared import format as fmt
from backend.store.queries.audit import OperationRow
from backend.store.queries.config import ConfigRow, TopicRow
from backend.store.queries.overview import BrokerRow


def config_row(resource: str, name: str, value: str | None, source: str = DEFAULT, **more: Any) -> ConfigRow:
    row = ConfigRow("broker", resource, name, value, source, False, False, "BOOLEAN", [], 0)
    return replace(row, **more)


def broker(broker_id: int) -> BrokerRow:
    return BrokerRow(broker_id, "h", 1, None, None, False, True, None, None, 0, 0)


def operation(**values: Any) -> OperationRow:
    empty: dict[str, Any] = dict.fromkeys(OperationRow.__slots__)
    return OperationRow(**(empty | {"id": 1, "kind": "toggle_bootstrap", "inputs": {}, "author": "ada"} | values))


def flag(broker_id: int, **levels: str) -> BrokerFlag:
    order = [BROKER, CLUSTER, FILE, DEFAULT]
    return BrokerFlag(broker_id, levels, next(level for level in order if level in levels))


def test_the_level_that_kafka_names_first_is_in_effect() -> None:
    synonyms: list[dict[str, str | None]] = [
        {"name": FLAG, "value": "true", "source": CLUSTER},
        {"name": FLAG, "value": "false", "source": DEFAULT},
    ]
    rows = [config_row("1", FLAG, "true", CLUSTER, synonyms=synonyms)]
    broker_flags = config_matrix.broker_flags([broker(1)], rows)
    assert (broker_flags[0].word, broker_flags[0].source, config_matrix.cluster_default(broker_flags)) == (
        "on",
        CLUSTER,
        "true",
    )


@pytest.mark.parametrize(
    ("values", "label", "minority"),
    [
        (("true", "true"), "On everywhere", set()),
        (("false", "false"), "Off everywhere", set()),
        (("false", "true", "false"), "Mixed: on for 1, off for 2", {2}),
        (("true", "false", "true"), "Mixed: on for 2, off for 1", {2}),
        ((), "Not known", set()),
    ],
)
def test_the_cluster_in_one_pill(values: tuple[str, ...], label: str, minority: set[int]) -> None:
    summary = config_matrix.summarize([flag(n, **{DEFAULT: value}) for n, value in enumerate(values, 1)])
    assert (summary.label, set(summary.minority)) == (label, minority)


def test_the_file_s_column_is_there_only_when_a_file_sets_it() -> None:
    assert "Broker's file" not in config_matrix.rows([flag(1, **{DEFAULT: "false"})], {}).columns
    assert "Broker's file" in config_matrix.rows([flag(1, **{FILE: "true", DEFAULT: "false"})], {}).columns


def test_the_column_of_who_set_a_value_is_there_only_when_one_is_set() -> None:
    unset, both = [flag(1, **{DEFAULT: "false"})], [flag(1, **{DEFAULT: "false"}), flag(2, **{BROKER: "true"})]
    assert "Set by" not in config_matrix.matrix_html(unset, {1: ""})
    assert "set by" not in config_matrix.rows(unset, {1: ""}).columns
    assert "Set by" in config_matrix.matrix_html(both, {1: "", 2: "ada"})
    assert list(config_matrix.rows(both, {1: "", 2: "ada"})["set by"]) == ["", "ada"]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([operation(state="verified", inputs={"broker_id": 2, "enable": True}, finished_ms=5)], "ada · 5"),
        ([operation(state="failed", inputs={"broker_id": 2, "enable": True}, finished_ms=5)], "not from here"),
        ([operation(state="verified", inputs={"broker_id": 2, "enable": False}, finished_ms=5)], "not from here"),
        ([operation(state="verified", inputs={"broker_id": None, "enable": True}, finished_ms=5)], "not from here"),
        ([], "not from here"),
    ],
)
def test_who_set_a_value_is_the_last_verified_plan_that_fits_it(operations: list[OperationRow], expected: str) -> None:
    own = flag(2, **{BROKER: "true", DEFAULT: "false"})
    assert config_matrix.set_by(own, operations, str) == expected
    assert config_matrix.set_by(flag(2, **{DEFAULT: "false"}), operations, str) == ""


def test_the_engine_s_compatibility_switch_decides_whose_rules_the_estimate_follows() -> None:
    kafka = [config_row("1", config_matrix.COMPAT, "kafka")]
    assert config_matrix.kafka_rules([], embedded=False)
    assert config_matrix.kafka_rules(kafka, embedded=True)
    assert not config_matrix.kafka_rules([config_row("1", config_matrix.COMPAT, "kip")], embedded=True)


# --- estimate ---


def estimate(*sizes: tuple[int, int]) -> dict[str, Any]:
    rows = [
        {"topic": "t", "partition": n, "verdict": "qualifies", "off_bytes": off, "on_bytes": on, "off_start": 0,
         "on_start": 90, "reason": ""}
        for n, (off, on) in enumerate(sizes)
    ]  # fmt: skip
    return {"tiered_partitions": len(rows), "partitions": rows, "blocked_partitions": []}


def test_depth_is_records_by_rate_and_unknown_without_one() -> None:
    ends: dict[tuple[str, int], int | None] = {("t", 0): 100, ("t", 1): 100}
    result = bootstrap_picture.gains(estimate((10, 1), (10, 1)), ends, {("t", 0): 10.0})
    assert [bootstrap_picture.depth_text(gain) for gain in result] == ["10 s → 1 s", "? → ?"]


def test_at_most_seven_partitions_are_drawn_and_only_those_that_qualify() -> None:
    many = estimate(*[(10, 1)] * 9)
    many["partitions"][0]["verdict"] = "no_effect"
    rows = bootstrap_picture.largest(many)
    assert [row["partition"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("sizes", [(1, 0), (1, 1), (7, 6), (10**13, 1), (44_000_000_000, 9_600_000_000), (0, 0)])
def test_sizes_stand_beside_their_marks_whatever_they_are(sizes: tuple[int, int]) -> None:
    gains = bootstrap_picture.gains(estimate(sizes), {}, {})
    html = bootstrap_picture.dumbbells_html(gains)
    assert html.count("eb-dot-off") == 1
    off, on = (fmt.size(size) for size in sizes)
    assert off in html
    assert on in html


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tiered_partitions": 0}, "No topic has remote.storage.enable=true"),
        ({"blocked_partitions": [{"reason": "Everything is copied."}]}, "Everything is copied."),
        ({"partitions": [{"verdict": "no_effect", "reason": "Holds offset 0."}]}, "Holds offset 0."),
    ],
)
def test_where_nothing_qualifies_the_reason_is_told(values: dict[str, Any], words: str) -> None:
    bootstrap_estimate = {"tiered_partitions": 1, "partitions": [], "blocked_partitions": []} | values
    assert words in bootstrap_picture.why_none(bootstrap_estimate)


# --- settings ---


def test_the_same_value_from_another_source_is_no_difference() -> None:
    rows = [config_row("1", "log.retention.ms", "5", FILE), config_row("2", "log.retention.ms", "5", BROKER)]
    broker_settings = config_table.broker_settings(rows, name_part="", tiering_only=True)
    assert (broker_settings[0].differs, len(broker_settings[0].variants)) == (False, 2)


def test_a_secret_is_never_shown() -> None:
    rows = [config_row("1", "ssl.key.password", None, FILE, is_sensitive=True)]
    broker_settings = config_table.broker_settings(rows, name_part="", tiering_only=False)
    assert "hidden by the broker" in config_table.broker_html(broker_settings, 1)


def test_the_cluster_default_is_a_source_and_not_a_broker() -> None:
    rows = [config_row("", "log.retention.ms", "5", CLUSTER)]
    assert config_table.broker_settings(rows, name_part="", tiering_only=False) == []


def topic(**config: str) -> TopicRow:
    base: dict[str, str | None] = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "local.retention.ms": "-2",
        "local.retention.bytes": "100",
    }
    return TopicRow("t", "id", 1, 3, False, True, base | {name.replace("_", "."): v for name, v in config.items()}, 0)


@pytest.mark.parametrize(
    ("topic_row", "sentences"),
    [
        (topic(), []),
        (topic(local_retention_bytes="-2"), ["local retention follows the total: tiering frees no disk"]),
        (topic(retention_bytes="99"), ["local retention by size is above the total"]),
        (topic(retention_bytes="99", local_retention_bytes="-1"), ["local retention by size is above the total"]),
        (topic(retention_bytes="100"), ["local retention follows the total: tiering frees no disk"]),
        (topic(cleanup_policy="compact,delete"), ["compacted topics cannot be tiered"]),
        (
            topic(remote_log_copy_disable="true"),
            [
                "copying is paused, so local retention by size must be the total or −2",
                "copying is paused: new segments stay local",
            ],
        ),
        (replace(topic(cleanup_policy="compact"), tiered=False), []),
        (replace(topic(), config=None), []),
        (topic(local_retention_bytes="x"), []),
    ],
)
def test_topics_are_held_against_kafka_s_rules(topic_row: TopicRow, sentences: list[str]) -> None:
    assert [remark.sentence for remark in config_table.remarks(topic_row)] == sentences


# --- plans ---


@pytest.mark.parametrize("state", ["requested", "accepted", "verified", "failed", "stopped", "reverted", "refused"])
def test_every_state_of_a_plan_has_words(state: str) -> None:
    row = operation(state=state, diff={"object": "broker 2", "changes": [{"before": None, "after": "true"}]})
    html = plan_text.outcome_html(replace(row, result={"sentence": "As it is."}))
    assert "Plan #1, broker 2: not set → true." in html
    assert ("eb-alert-critical" in html) == (state in ("failed", "stopped", "refused"))


def test_a_plan_without_words_is_shown_all_the_same() -> None:
    view = plan_text.of_plan(operation(state="refused", diff=None, checks=None, cli=None, estimate=None))
    assert (view.title, view.refused, view.act) == ("Change", True, "Change")
    assert plan_text.facts_html(view) == '<dl class="eb-facts"></dl>'
