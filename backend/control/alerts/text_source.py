"""Texts of the alerts file that stand elsewhere: `env:NAME` in a variable, `file:PATH` in a file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backend.control.alerts.table_mistake import Place, TableMistake, dotted

ENV: Final = "env:"
FILE: Final = "file:"
# A URL has 8 kB at most where it is taken, a key less.
TEXT_BYTES_MAX: Final = 65_536


class TextSource:
    """Resolves the texts of one file, and notes the files that it has read."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables
        self.files: list[Path] = []

    def resolve(self, text: str, place: Place) -> str:
        """The text itself, or what it refers to. Raises TableMistake."""
        if text.startswith(ENV):
            value = self._variables.get(text.removeprefix(ENV), "").strip()
            if not value:
                raise TableMistake(place, f"{dotted(place)} names a variable of the environment that is not set")
            return value
        if text.startswith(FILE):
            return self._read(self._folder / text.removeprefix(FILE), place)
        return text

    def _read(self, path: Path, place: Place) -> str:
        try:
            with path.open("rb") as file:
                content = file.read(TEXT_BYTES_MAX + 1)
            value = content.decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or "it is no text"
            raise TableMistake(place, f"{dotted(place)} names a file that cannot be read ({cause})") from error
        if not value or len(content) > TEXT_BYTES_MAX or len(value.splitlines()) > 1:
            raise TableMistake(place, f"{dotted(place)} names a file that does not hold one line")
        self.files.append(path)
        return value
