"""The alerts file as it is in force: read again when it changes; a mistake is kept as a sentence, and logged once.

A copy of the last usable text lies in the folder `run`: a backend that is started again while the file has a mistake
goes on with that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backend.control.alerts.alerts_file import NOTHING, AlertsConfig, AlertsFileError, parse_alerts, read_alerts
from backend.control.alerts.rule_edits import RuleEdit, RuleEditError, edited
from backend.control.wall_clock import now_ms
from backend.runtime.private_files import write_private

DEFAULT_NAME: Final = "alerts.toml"
COPY_NAME: Final = "alerts-in-force.toml"
_log = logging.getLogger(__name__)
Stamp = tuple[tuple[str, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class AlertsFiles:
    """`named` by the setting; None: `default`, when it is there. `copy` has the last usable text, where one is kept."""

    named: Path | None
    default: Path
    copy: Path | None = None

    @property
    def path(self) -> Path:
        return self.named or self.default


class AlertsFileWatch:
    """Belongs to whom calls `read`, one call at a time. `mistake` None: the file is usable, or there is none."""

    def __init__(self, files: AlertsFiles, variables: Mapping[str, str] | None = None) -> None:
        self.files = files
        self._variables = os.environ if variables is None else variables
        self.config: AlertsConfig = NOTHING
        self.mistake: str | None = None
        self.loaded_ms: int | None = None
        self._stamp: Stamp | None = None
        self._absent = 0

    @property
    def there(self) -> bool:
        """Whether a file is in force or should be."""
        return self.loaded_ms is not None or self.mistake is not None

    def read(self) -> bool:
        """Looks at the files; whether another content is in force now."""
        first = self._stamp is None
        stamp = _stamp({self.files.path, *self.config.files})
        if self.files.named is None and not self.files.default.exists():
            return self._without_file(first=first)
        self._absent = 0
        # A file that it names may have to be made first: as long as there is a mistake, all of it is read each time.
        if stamp == self._stamp and self.mistake is None:
            return False
        self._stamp = stamp
        try:
            config = read_alerts(self.files.path, self._variables)
        except AlertsFileError as error:
            self._refuse(str(error))
            return first and self._from_copy()
        if self.mistake is not None:
            _log.info("The alerts file is usable again")
        # With the files that it names: those of the content before may be others.
        self._stamp = _stamp(config.files)
        changed = config != self.config
        self.config, self.mistake, self.loaded_ms = config, None, now_ms()
        self._keep_copy()
        return changed or first

    def change(self, edit: RuleEdit) -> None:
        """Writes a rule's settings into the file, which need not be there yet; `read` puts them in force.

        Raises AlertsFileError: the file has a mistake already, would get one, cannot be changed, or is not writable.
        """
        path = self.files.path.resolve()
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            mode = path.stat().st_mode & 0o777 if path.exists() else None
        except (OSError, UnicodeDecodeError) as error:
            raise AlertsFileError(f"The alerts file {path.name} cannot be read: {describe(error)}.") from error
        parse_alerts(self.files.path, text, self._variables)
        try:
            changed = edited(text, edit)
        except RuleEditError as error:
            raise AlertsFileError(str(error)) from error
        try:
            parse_alerts(self.files.path, changed, self._variables)
        except AlertsFileError as error:
            raise AlertsFileError(error.reason or str(error)) from error
        try:
            write_private(path, changed)
            if mode is not None:
                path.chmod(mode)
        except OSError as error:
            raise AlertsFileError(f"The alerts file {path.name} cannot be written: {describe(error)}.") from error

    def _without_file(self, *, first: bool) -> bool:
        """No file in the usual place: twice in a row, and there are no receivers; an editor may be writing it."""
        self._stamp = self._stamp or ()
        self._absent += 1
        if first or self._absent < 2 or not self.there:
            return False
        _log.info("The alerts file is gone: its receivers and rules are no longer in force")
        self.config, self.mistake, self.loaded_ms, self._stamp = NOTHING, None, None, ()
        if self.files.copy is not None:
            self.files.copy.unlink(missing_ok=True)
        return True

    def _refuse(self, mistake: str) -> None:
        if mistake != self.mistake:
            _log.error("%s The former receivers and rules stay in force.", mistake)
        self.mistake = mistake

    def _from_copy(self) -> bool:
        if self.files.copy is None:
            return False
        try:
            text = self.files.copy.read_text(encoding="utf-8")
            self.config = parse_alerts(self.files.path, text, self._variables)
        except (OSError, UnicodeDecodeError, AlertsFileError):
            return False
        self.loaded_ms = now_ms()
        return True

    def _keep_copy(self) -> None:
        if self.files.copy is None:
            return
        try:
            write_private(self.files.copy, self.config.text)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self.files.copy.name, error.strerror)


def describe(error: OSError | UnicodeDecodeError) -> str:
    """The reason without the path."""
    return "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or type(error).__name__


def _stamp(paths: Iterable[Path]) -> Stamp:
    """Changes when one of the files does."""
    return tuple(_file_stamp(path) for path in sorted(paths))


def _file_stamp(path: Path) -> tuple[str, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return str(path), status.st_ino, status.st_mtime_ns, status.st_size
