"""The clock of a page: which parts a beat draws again."""

from __future__ import annotations

from app.components.shared.pulse import LONG_MS, VISIBLE_MS, LivePart, due

NOW_MS = 1_000_000


def test_a_beat_draws_each_part_that_is_due_and_no_other() -> None:
    parts = {
        "head": LivePart(VISIBLE_MS, NOW_MS - VISIBLE_MS),
        "late": LivePart(VISIBLE_MS, NOW_MS - 2 * VISIBLE_MS),
        "early": LivePart(VISIBLE_MS, NOW_MS - VISIBLE_MS + 400),
        "just drawn": LivePart(VISIBLE_MS, NOW_MS - 400),
        "long range": LivePart(LONG_MS, NOW_MS - 2 * VISIBLE_MS),
        "long range, due": LivePart(LONG_MS, NOW_MS - LONG_MS),
    }
    assert due(parts, NOW_MS) == ["head", "late", "early", "long range, due"]
