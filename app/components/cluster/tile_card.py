"""A figure of the Overview as HTML. Pure."""

from __future__ import annotations

from app.components.cluster.totals import Tile
from app.components.shared import markup


def html(tile: Tile, picture: str, alt: str, *, note: str = "", old: bool = False) -> str:
    """Name with ``note``, a mark of its severity before the figure, and the line below in quiet type.

    The mark points up: before a change it would read as its direction, and a change has a sign for that.
    """
    image = f'<img src="{picture}" alt="{markup.text(alt)}">' if picture else ""
    sign = markup.mark(tile.status) + " " if tile.status else ""
    return (
        f'<div class="eb-tile{" eb-old" if old else ""}"><div class="eb-name">{markup.text(tile.name)} {note}</div>'
        f'<div class="eb-figure">{sign}{markup.text(tile.value)}</div>'
        f'<div class="eb-sub">{markup.text(tile.sub)}</div>{image}</div>'
    )
