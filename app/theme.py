"""Colours, type and the Plotly template of the dashboard, light and dark.

Identity (where data is) and status (how it is) never mix: red and amber never mean a tier, violet
never a status. Healthy is quiet grey.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Fonts, marks and style sheets.
STATIC: Final = Path(__file__).resolve().parent / "static"
FONT: Final = "Inter, 'Source Sans', sans-serif"
MONO: Final = "'JetBrains Mono', 'Source Code', monospace"


@dataclass(frozen=True, slots=True)
class Palette:
    """Named colours of one theme; every text colour has at least 4.5:1 on page and card."""

    name: str
    local: str
    remote: str
    critical: str
    warning: str
    ok: str
    notice: str
    page: str
    card: str
    line: str
    grid: str
    text: str
    muted: str
    epoch_fill: str
    remote_fill: str
    critical_fill: str
    warning_fill: str
    local_fill: str
    ok_fill: str
    field: str


LIGHT: Final = Palette(
    name="light",
    local="#1D62C4",
    remote="#9C86D6",
    critical="#C8322B",
    warning="#935600",
    ok="#177245",
    notice="#5C6675",
    page="#F6F7F9",
    card="#FFFFFF",
    line="#E2E5EA",
    grid="#EDEFF3",
    text="#1B2330",
    muted="#5C6675",
    epoch_fill="#F1F3F6",
    remote_fill="#EEEAF8",
    critical_fill="#FBE9E8",
    warning_fill="#FBF0DE",
    local_fill="#E3EDFB",
    ok_fill="#E6F4EC",
    field="#F5F6F8",
)
DARK: Final = Palette(
    name="dark",
    local="#6DB3FF",
    remote="#7C68C6",
    critical="#F0685F",
    warning="#E3A93C",
    ok="#3FBF87",
    notice="#98A2B1",
    page="#0C1015",
    card="#141921",
    line="#2A313C",
    grid="#1F2630",
    text="#E2E7EE",
    muted="#98A2B1",
    epoch_fill="#1C232D",
    remote_fill="#241F3A",
    critical_fill="#3A1C1B",
    warning_fill="#33270F",
    local_fill="#14263D",
    ok_fill="#12291E",
    field="#1A202A",
)
# A status is never colour alone: the mark and the word come with it.
STATUS_MARKS: Final = {"critical": "▲", "warning": "◆", "ok": "✓", "notice": "●"}


def palette(theme_type: str | None) -> Palette:
    """The palette for Streamlit's theme type, ``light`` or ``dark``."""
    return DARK if theme_type == "dark" else LIGHT


def status_colour(colours: Palette, status: str) -> str:
    """Colour of ``critical``, ``warning``, ``ok`` or ``notice``."""
    return {
        "critical": colours.critical,
        "warning": colours.warning,
        "ok": colours.ok,
        "notice": colours.notice,
    }[status]


def layout(colours: Palette, *, height: int, **more: Any) -> dict[str, Any]:
    """The layout every figure starts from: transparent, quiet, no legend, no mode bar, nothing to drag."""
    return {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 11.5, "color": colours.muted},
        "showlegend": False,
        "dragmode": False,
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "margin": {"l": 110, "r": 60, "t": 10, "b": 28},
        **more,
    }


# The bar comes with the pointer and holds one thing: the picture as a PNG, made in the browser.
CONFIG: Final = {
    "displayModeBar": "hover",
    "displaylogo": False,
    "modeBarButtons": [["toImage"]],
    "toImageButtonOptions": {"format": "png", "scale": 2, "filename": "ebbline"},
    "scrollZoom": False,
    "doubleClick": False,
}
