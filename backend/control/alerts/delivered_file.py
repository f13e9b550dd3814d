"""The file that keeps which findings each receiver has as open, so that the next process goes on from there.

Without it a restart would either send every open finding again or leave receivers with alerts that never end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.findings.finding_context import SEVERITIES
from backend.runtime.private_files import write_private

VERSION: Final = 1
DELIVERED_NAME: Final = "alerts-delivered.json"
_log = logging.getLogger(__name__)


def write_delivered(path: Path, delivered: Mapping[str, Iterable[Notice]]) -> None:
    """All or nothing; the evidence stays in the database. Raises OSError."""
    receivers = {name: [_row(notice) for notice in notices] for name, notices in delivered.items()}
    write_private(path, json.dumps({"version": VERSION, "receivers": receivers}, ensure_ascii=False) + "\n")


def read_delivered(path: Path) -> dict[str, list[Notice]]:
    """By receiver. A file that is none or cannot be used is empty: what is open is sent once more then."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): [_notice(row) for row in rows if row["severity"] in SEVERITIES]
            for name, rows in content["receivers"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s is not usable (%s): receivers get what is open once more", path.name, type(error).__name__)
        return {}


def _row(notice: Notice) -> dict[str, Any]:
    row = asdict(notice)
    del row["evidence"], row["cause"]
    return row


def _notice(row: Mapping[str, Any]) -> Notice:
    return Notice(**{**row, "event": NoticeEvent(row["event"]), "evidence": {}})
