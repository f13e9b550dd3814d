"""The pictures of the Overview as data: figures, cells, small lines."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from app.components.cluster import broker_grid, throughput
from app.components.cluster.sparkline import POINTS_MAX, sparkline
from app.components.cluster.totals import ThroughputRates, rates
from app.components.partition import range_list
from app.components.shared import markup
from app.theme import DARK, LIGHT, Palette
from backend.store.queries.overview import CopiedBytes, FindingRow
from backend.tiering.pending import PendingReason
from tests.unit.app.overview_rows import NOW_MS, broker, disk, facts, partition, sample, segment, topic

HOUR_MS = 3_600_000


def history(pending: int = 1_000) -> list[Any]:
    return [
        sample(
            NOW_MS - HOUR_MS + step * 60_000,
            produced_bytes=step * 600,
            pending_bytes=pending,
        )
        for step in range(61)
    ]


def rates_of(samples: list[Any]) -> ThroughputRates:
    copied = [CopiedBytes(NOW_MS - 2 * HOUR_MS + step * 30_000, 240) for step in range(241)]
    return rates(samples, copied, HOUR_MS, interval_ms=2_000, ledger_ms=NOW_MS)


def throughput_of(limit: int | None, pending: int = 1_000) -> Any:
    samples = history(pending)
    return throughput.figure(rates_of(samples), samples, limit, NOW_MS - HOUR_MS, NOW_MS, LIGHT, None)


def labels(figure: Any) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def test_throughput_labels_its_lines_with_what_they_are_now() -> None:
    figure = throughput_of(None)
    assert [trace.name for trace in figure.data] == ["copied", "produced", "pending"]
    assert labels(figure)[:3] == ["copied 8 B/s", "produced 10 B/s", "pending 1.0 kB"]
    assert figure.layout.yaxis.range[0] == figure.layout.yaxis2.range[0] == 0


def test_a_near_limit_is_drawn_and_a_far_one_only_named() -> None:
    near, far = throughput_of(2_000), throughput_of(1_000_000)
    assert len(near.layout.shapes) == 1
    assert "limit 2.0 kB" in labels(near)
    assert len(far.layout.shapes) == 0
    assert "limit 1.0 MB ↑" in labels(far)


@pytest.mark.parametrize("limit", [None, 900, 1_010, 1_000_000])
def test_labels_never_leave_their_axis(limit: int | None) -> None:
    figure = throughput_of(limit)
    for note in figure.layout.annotations:
        if note.yref in ("y", "y2"):
            axis = figure.layout.yaxis if note.yref == "y" else figure.layout.yaxis2
            assert note.y <= axis.range[1]


def test_throughput_of_unknown_figures_has_a_gap_and_a_question_mark() -> None:
    samples = [sample(at_ms, pending_bytes=None, produced_bytes=None) for at_ms in (NOW_MS - 60_000, NOW_MS)]
    figure = throughput.figure(rates_of(samples), samples, None, NOW_MS - HOUR_MS, NOW_MS, DARK, None)
    assert list(figure.data[2].y) == [None, None]
    assert {"pending ?", "produced ?"} < set(labels(figure))


def test_no_line_of_throughput_crosses_minutes_without_samples() -> None:
    samples = history()
    del samples[20:33]
    figure = throughput.figure(rates_of(samples), samples, None, NOW_MS - HOUR_MS, NOW_MS, LIGHT, None)
    for trace in figure.data:
        assert trace.y[20] is None
        assert None not in (trace.y[19], trace.y[22])
        assert trace.x[19] < trace.x[20] < trace.x[21]


def test_the_table_twin_has_the_newest_first() -> None:
    samples = history()
    table = throughput.rows(rates_of(samples), samples, None)
    assert table["time"].iloc[0] == "2027-01-15 08:00:00"
    assert list(table.columns)[1] == "produced, bytes/s"


def test_values_are_pushed_apart_only_where_they_would_overlap() -> None:
    assert throughput.apart([1.0, 5.0], 2.0, 10.0) == [1.0, 5.0]
    assert throughput.apart([1.0, 1.5], 2.0, 10.0) == [1.0, 3.0]
    assert throughput.apart([9.0, 9.5], 2.0, 10.0) == [8.0, 10.0]


def spans(figure: Any, name: str) -> list[tuple[float, float]]:
    [trace] = [bar for bar in figure.data if bar.name == name]
    return [(round(base, 3), round(base + length, 3)) for base, length in zip(trace.base, trace.x, strict=True)]


def test_ranges_meet_where_pending_ends_and_local_reaches_as_far_as_its_bytes() -> None:
    row = partition(
        local_log_bytes=100_000, local_log_start_offset=0, earliest_pending_upload_offset=900, ledger_bytes=990_000
    )
    figure = range_list.figure([range_list.bar_of(row, 50_000)], LIGHT)
    assert spans(figure, "pending")[0][1] == 4.0  # 10 000 bytes
    assert spans(figure, "local") == [(4.0, 5.0)]
    assert spans(figure, "remote") == [(4.0, 6.0)]


def test_unknown_pending_is_a_question_mark_with_its_cause_and_no_bar() -> None:
    row = partition(earliest_pending_upload_offset=-1, pending_reason=PendingReason.LEADER_DOES_NOT_KNOW)
    figure = range_list.figure([range_list.bar_of(row, None)], LIGHT)
    assert spans(figure, "pending") == []
    [label] = figure.layout.annotations
    assert (label.text, label.hovertext) == ("?", "the leader does not know yet")
    assert range_list.rows([row], {})["pending"][0] == "? the leader does not know yet"


@pytest.mark.parametrize("colours", [LIGHT, DARK])
@pytest.mark.parametrize(("limit", "status"), [(10_000, None), (300, "warning"), (200, "critical")])
def test_the_outline_turns_amber_at_half_the_limit_and_red_at_it(
    colours: Palette, limit: int, status: str | None
) -> None:
    figure = range_list.figure([range_list.bar_of(partition(), limit)], colours)
    edge = figure.data[2].marker.line.color[0]
    assert edge == (colours.local if status is None else getattr(colours, status))


def test_the_axis_starts_near_the_smallest_bar_and_names_the_log_end() -> None:
    figure = range_list.figure([range_list.bar_of(partition(local_log_bytes=10**9), None)], LIGHT)
    high, low = figure.layout.xaxis.range
    assert low == pytest.approx(8.1, abs=0.01)  # half a decade below 400 MB
    assert high > 9
    assert figure.layout.xaxis.ticktext[0] == "log end"


def test_an_empty_list_and_an_empty_partition_can_be_drawn() -> None:
    empty = partition(log_end_offset=0, local_log_start_offset=0, local_log_bytes=0, remote_log_bytes=0)
    figure = range_list.figure([range_list.bar_of(empty, 10)], LIGHT)
    assert all(spans(figure, trace.name) == [] for trace in figure.data)
    assert len(range_list.figure([], LIGHT).data) == 3


def test_long_and_strange_names_are_cut_and_escaped() -> None:
    row = partition("a<b>" + "x" * 60)
    [name] = range_list.figure([range_list.bar_of(row, None)], LIGHT).layout.yaxis.ticktext
    assert name.startswith("a&lt;b>")
    assert "…" in name
    assert name.endswith("-0")


def checks(**more: Any) -> dict[int, dict[str, broker_grid.BrokerCheck]]:
    result = broker_grid.checks(facts(**more), {1: 9, 2: 9, 3: 9}, 6_000, NOW_MS)
    return {broker_id: dict(zip(broker_grid.CHECKS, row, strict=True)) for broker_id, row in result.items()}


def test_a_healthy_broker_has_only_quiet_cells() -> None:
    assert {check.label for row in checks().values() for check in row.values()} == {"✓"}


def test_each_check_blames_the_broker_it_belongs_to() -> None:
    result = checks(
        open_segments=[segment(age_ms=120_000)],
        replicas_behind={(2, "FETCHING"): 1, (3, "FAILED"): 1},
        brokers=[broker(1), broker(2, log_dirs=[disk(0.9)]), broker(3, seen_ms=NOW_MS - 7_000)],
        topics=[topic(local_retention_bytes="300")],
    )
    assert (result[1]["Copy"].label, result[1]["Copy"].status) == ("1 hung", "critical")
    assert (result[1]["Pending"].label, result[1]["Pending"].status) == ("200 B", "warning")
    assert (result[2]["In sync"].label, result[2]["In sync"].status) == ("1 of 9", "warning")
    assert (result[3]["In sync"].label, result[3]["In sync"].status) == ("1 of 9", "critical")
    assert (result[2]["Disk"].label, result[2]["Disk"].status) == ("100 B free", "warning")
    assert (result[3]["Data age"].label, result[3]["Data age"].status) == ("7 s", "critical")


def test_a_broker_whose_copies_fail_is_not_fine() -> None:
    evidence = {"brokers": [1, 3]}
    failing = FindingRow("copy-failing", "remote storage", 0, "critical", "Copies fail", evidence, NOW_MS, None)
    result = checks(findings=[failing])
    assert (result[1]["Copy"].label, result[1]["Copy"].status) == ("fails", "critical")
    assert (result[2]["Copy"].label, result[3]["Copy"].hint) == ("✓", "Copies fail")


def test_unknown_is_told_with_its_cause_and_never_as_fine() -> None:
    result = checks(brokers=[broker(1, log_dirs=None), broker(2, reachable=False)])
    assert result[1]["Disk"].status == "unknown"
    assert result[2]["Answers"].status == "warning", "as broker-away, which is not open yet"
    html = broker_grid.grid_html({number: tuple(row.values()) for number, row in result.items()})
    assert "? unknown: Broker 1 does not tell its disk&#x27;s size; Broker 2 does not answer" in html


def test_a_silent_broker_is_as_severe_as_its_finding() -> None:
    away = FindingRow(
        "broker-away", "broker 2", 0, "critical", "Broker 2 does not answer", {}, NOW_MS, None, broker_id=2
    )
    result = checks(brokers=[broker(1), broker(2, reachable=False, seen_ms=NOW_MS - 60_000)], findings=[away])
    assert (result[2]["Answers"].status, result[2]["Data age"].status) == ("critical", "critical")


def test_a_sparkline_is_an_image_with_few_points() -> None:
    uri = sparkline([float(value) for value in range(5_000)], LIGHT.local)
    svg = b64decode(uri.removeprefix("data:image/svg+xml;base64,")).decode()
    line = svg.split('<polyline points="')[1].split('"')[0]
    assert 2 < len(line.split()) <= POINTS_MAX + 1
    assert LIGHT.local in svg


def test_a_sparkline_breaks_where_a_value_is_missing() -> None:
    uri = sparkline([1.0, 2.0, None, 3.0, 4.0], LIGHT.local)
    svg = b64decode(uri.removeprefix("data:image/svg+xml;base64,")).decode()
    assert svg.count("<polyline") == 2


def test_a_sparkline_of_less_than_two_known_values_is_nothing() -> None:
    assert sparkline([], "#000") == ""
    assert sparkline([None, 3.0, None], "#000") == ""


def test_a_flat_sparkline_lies_at_the_bottom_when_it_is_zero() -> None:
    svg = b64decode(sparkline([0.0, 0.0, 0.0], "#000").removeprefix("data:image/svg+xml;base64,")).decode()
    line = svg.split('<polyline points="')[1].split('"')[0]
    assert {point.split(",")[1] for point in line.split()} == {"38"}


def test_every_piece_of_markup_escapes_what_it_is_given() -> None:
    bad = "<script>'\""
    pieces = [
        markup.pill(bad, title=bad),
        markup.card_title(bad, bad),
        markup.table([(bad, "left")], [[bad]], caption=bad),
        markup.pairs([(bad, bad)]),
        markup.empty(bad, bad),
        markup.alert("critical", bad, bad, bad),
    ]
    for piece in pieces:
        assert "<script>" not in piece
        assert "&lt;script&gt;&#x27;&quot;" in piece
