"""A small line of one series as an image: Streamlit drops inline SVG, an `img` with a data URI stays."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 64
HEIGHT: Final = 42
POINTS_MAX: Final = 60  # about one a pixel


def sparkline(values: Sequence[float | None], colour: str) -> str:
    """A data URI of the line with its last point marked; empty text when there is nothing to draw.

    The line breaks where a value is None.
    Zero-based unless the values stay within a fifth of their height, where zero would hide every change.
    """
    points = [(position, float(value)) for position, value in enumerate(values) if value is not None]
    if len(points) < 2:
        return ""
    step = -(-len(points) // POINTS_MAX)
    stretches = [_thinned(stretch, step) for stretch in _stretches(points)]
    kept = [entry for stretch in stretches for entry in stretch]
    low, high = min(value for _, value in kept), max(value for _, value in kept)
    floor = low - (high - low) * 0.1 if high > 0 and low > 0.8 * high else min(0.0, low)
    span_x, span_y = max(1, kept[-1][0] - kept[0][0]), (high - floor) or 1.0
    flat = high == floor

    def point(position: int, value: float) -> tuple[float, float]:
        x = 1 + (position - kept[0][0]) / span_x * (WIDTH - 5)
        y = HEIGHT - 4 if flat else 4 + (1 - (value - floor) / span_y) * (HEIGHT - 8)
        return round(x, 1), round(y, 1)

    drawn = "".join(
        _stretch_svg([point(position, value) for position, value in stretch], colour) for stretch in stretches
    )
    end_x, end_y = point(*kept[-1])
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'{drawn}<circle cx="{end_x}" cy="{end_y}" r="2" fill="{colour}"/></svg>'
    )
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def _stretches(points: Sequence[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    """Runs of values without a missing one between them."""
    stretches: list[list[tuple[int, float]]] = []
    for entry in points:
        if stretches and entry[0] == stretches[-1][-1][0] + 1:
            stretches[-1].append(entry)
        else:
            stretches.append([entry])
    return stretches


def _thinned(stretch: Sequence[tuple[int, float]], step: int) -> list[tuple[int, float]]:
    return [*stretch[:-1:step], stretch[-1]]


def _stretch_svg(points: Sequence[tuple[float, float]], colour: str) -> str:
    line = " ".join(f"{x},{y}" for x, y in points)
    area = f"{points[0][0]},{HEIGHT - 1} {line} {points[-1][0]},{HEIGHT - 1}"
    return (
        f'<polygon points="{area}" fill="{colour}" fill-opacity="0.12"/>'
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"/>'
    )
