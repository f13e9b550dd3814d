"""Contrast as WCAG 2.2 counts it, from the tokens of both themes; and that colour never tells anything alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from app.components.partition import partition_heatmap
from app.components.shared import markup, style
from app.theme import DARK, LIGHT, STATUS_MARKS, Palette

TEXT_MIN, MARK_MIN = 4.5, 3.0  # WCAG 1.4.3 and 1.4.11, level AA
CONFIG: Final = Path(__file__).resolve().parents[3] / ".streamlit" / "config.toml"
STATUSES: Final = tuple(STATUS_MARKS)
# Each colour of text with the colours behind it: the tokens of style.py.
WORDS: Final = ("text", "muted", *STATUSES, "local")
GROUNDS: Final = ("page", "card", "field")
ON_FILLS: Final = (
    *((status, f"{status}_fill") for status in ("critical", "warning", "ok")),
    *(
        ("text", fill)
        for fill in ("critical_fill", "warning_fill", "ok_fill", "local_fill", "remote_fill", "epoch_fill")
    ),
    ("muted", "epoch_fill"),
    ("card", "local"),  # the label of a primary button
)
MARKS: Final = ("local", "remote", *STATUSES)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, other: str) -> float:
    dark, light = sorted((luminance(colour), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_known_colours_is_what_wcag_says() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=lambda colours: str(colours.name))
def test_every_text_and_mark_stands_out_in_both_themes(colours: Palette) -> None:
    pairs = [(word, ground, TEXT_MIN) for word in WORDS for ground in GROUNDS]
    pairs += [(word, fill, TEXT_MIN) for word, fill in ON_FILLS]
    pairs += [(mark, "card", MARK_MIN) for mark in MARKS]  # pictures stand on cards only
    too_faint = {
        f"{foreground} on {background}": round(contrast(getattr(colours, foreground), getattr(colours, background)), 2)
        for foreground, background, least in pairs
        if contrast(getattr(colours, foreground), getattr(colours, background)) < least
    }
    assert too_faint == {}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=lambda colours: str(colours.name))
def test_the_theme_of_streamlit_has_the_same_colours(colours: Palette) -> None:
    theme = tomllib.loads(CONFIG.read_text())["theme"][colours.name]
    assert theme["primaryColor"].upper() == colours.local
    assert theme["textColor"].upper() == colours.text
    assert contrast(theme["textColor"], theme["backgroundColor"]) >= TEXT_MIN


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_a_mark_and_a_word_beside_its_colour(status: str) -> None:
    shown = re.sub(r"<[^>]+>", " ", markup.status_word(status))
    assert STATUS_MARKS[status] in shown
    assert status in shown.lower()
    assert len(set(STATUS_MARKS.values())) == len(STATUS_MARKS)


def test_tiers_differ_by_hatch_and_outline_as_well_as_by_colour() -> None:
    sheet = style.base(LIGHT)
    (remote,) = re.findall(r"\.eb-swatch-remote \{([^}]*)\}", sheet)
    (pending,) = re.findall(r"\.eb-swatch-pending \{([^}]*)\}", sheet)
    assert "repeating-linear-gradient" in remote
    assert "border" in pending


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=lambda colours: str(colours.name))
def test_the_steps_of_the_heatmap_are_told_apart_by_lightness_too_and_named(colours: Palette) -> None:
    steps = partition_heatmap.colours_of(colours)
    for family in (steps[:3], steps[3:6]):
        order = [luminance(colour) for colour in family]
        assert order in (sorted(order), sorted(order, reverse=True))
    legend = partition_heatmap.legend_html(colours)
    assert all(words in legend for words in partition_heatmap.STEP_LABELS)
