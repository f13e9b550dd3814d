"""Maintenance windows as lines and as a table."""

from __future__ import annotations

from dataclasses import replace

from app.components.cluster.maintenance_list import covered, line_html, phase, rows
from backend.store.maintenance_window import MaintenanceWindow

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
WINDOW = MaintenanceWindow(5, NOW_MS, NOW_MS + HOUR_MS, "copy-slow", "logs-*", 2, "<b>disks</b>", NOW_MS, "ada")


def test_a_window_says_what_it_covers_and_how_long() -> None:
    assert covered(WINDOW) == "copy-slow, topics logs-*, broker 2"
    assert covered(replace(WINDOW, slug=None, topic=None, broker_id=None)) == "everything"
    assert covered(replace(WINDOW, slug=None, topic=None, broker_id=0)) == "broker 0"
    assert phase(WINDOW, NOW_MS) == "for 1 h more"
    assert phase(WINDOW, NOW_MS - 2 * HOUR_MS) == "in 2 h"
    assert phase(WINDOW, NOW_MS + HOUR_MS) == "ended"


def test_a_person_s_text_is_no_markup() -> None:
    assert "&lt;b&gt;disks" in line_html(WINDOW, NOW_MS)


def test_the_table_has_a_row_a_window() -> None:
    table = rows([WINDOW], NOW_MS, str)
    assert table.to_dict("records") == [
        {
            "window": 5,
            "covers": "copy-slow, topics logs-*, broker 2",
            "state": "for 1 h more",
            "begins": str(NOW_MS),
            "ends": str(NOW_MS + HOUR_MS),
            "by": "ada",
            "reason": "<b>disks</b>",
        }
    ]
