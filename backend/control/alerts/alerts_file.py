"""The file of alerts: receivers, routes and rules, read and checked; a mistake is one sentence with its line.

No message shows a value: it may be a secret. Secrets need not stand in the file: a text `env:NAME` is that variable,
`file:PATH` the content of a file beside it.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from backend.control.alerts.alerts_document import (
    RECEIVER_NAME,
    RECEIVERS_MAX,
    ROUTES_MAX,
    TABLES,
    ReceiverTable,
    RouteTable,
)
from backend.control.alerts.receiver_config import ReceiverConfig, ReceiverKind
from backend.control.alerts.routing import AlertRoute, Routing
from backend.control.alerts.rule_tables import read_rules
from backend.control.alerts.table_mistake import TableMistake, reason_of
from backend.control.alerts.text_source import TextSource
from backend.control.alerts.toml_lines import line_of
from backend.control.findings.catalogue import SLUGS
from backend.control.findings.thresholds import RuleSettings

# 100 receivers, 1,000 routes and a table for each rule are 100 kB.
FILE_BYTES_MAX: Final = 1 << 20
# The receiver of the setting `webhook_url`.
OF_SETTING: Final = "webhook_url"
_TOP: Final = ("receivers", "routes", "rules")


class AlertsFileError(Exception):
    """The file cannot be used. One sentence, with the line and the reason; `reason`: a wrong value's alone."""

    def __init__(self, sentence: str, reason: str | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """Content of the file. `files`: those that were read, for who watches them; `text` as it stands there."""

    receivers: Mapping[str, ReceiverConfig]
    routing: Routing
    rules: RuleSettings
    files: tuple[Path, ...] = ()
    text: str = field(default="", repr=False)


NOTHING: Final = AlertsConfig({}, Routing(), RuleSettings())


def read_alerts(path: Path, variables: Mapping[str, str]) -> AlertsConfig:
    """The file and what it refers to. Raises AlertsFileError."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        cause = error.strerror or "it is none"
        raise AlertsFileError(f"The alerts file cannot be read ({cause}): see that it is there.") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise AlertsFileError(f"The alerts file {path.name} is not usable: line {line} is no UTF-8.") from error
    if len(content) > FILE_BYTES_MAX:
        raise AlertsFileError(f"The alerts file {path.name} is not usable: it has more than {FILE_BYTES_MAX} bytes.")
    return parse_alerts(path, text, variables)


def parse_alerts(path: Path, text: str, variables: Mapping[str, str]) -> AlertsConfig:
    """The content of the file at `path`. Raises AlertsFileError."""
    try:
        return replace(_config(tomllib.loads(text), TextSource(path.parent, variables), path), text=text)
    except tomllib.TOMLDecodeError as error:
        # Python's text ends with "(at line 3, column 7)" or "(at end of document)".
        raise AlertsFileError(f"The alerts file {path.name} is not usable: {error}.") from error
    except RecursionError as error:
        raise AlertsFileError(f"The alerts file {path.name} is not usable: its values are nested too deep.") from error
    except TableMistake as error:
        line = line_of(text, error.path)
        place = "" if line is None else f"line {line}: "
        sentence = f"The alerts file {path.name} is not usable: {place}{error}."
        raise AlertsFileError(sentence, f"{error}.") from error


def _config(document: Mapping[str, Any], source: TextSource, path: Path) -> AlertsConfig:
    for name in document.keys() - set(_TOP):
        raise TableMistake((name,), f"{name} is no table of this file; there are {', '.join(_TOP)}")
    receivers = _receivers(document.get("receivers", {}), source)
    routes = _routes(document.get("routes", []), receivers)
    everything = frozenset() if routes else frozenset(receivers)
    rules = read_rules(document.get("rules", {}))
    return AlertsConfig(receivers, Routing(routes, everything), rules, (path, *source.files))


def _receivers(tables: Any, source: TextSource) -> dict[str, ReceiverConfig]:
    if not isinstance(tables, dict):
        raise TableMistake(("receivers",), "receivers is a table of tables, such as [receivers.ops]")
    if len(tables) > RECEIVERS_MAX:
        raise TableMistake(("receivers",), f"there are more than {RECEIVERS_MAX} receivers")
    result = {}
    for name, content in tables.items():
        place = ("receivers", name)
        if not RECEIVER_NAME.fullmatch(name) or name == OF_SETTING:
            raise TableMistake(place, "a receiver's name has letters, digits, '_' and '-', and is not webhook_url")
        kind = content.get("kind") if isinstance(content, dict) else None
        if not isinstance(kind, str) or kind not in TABLES:
            raise TableMistake((*place, "kind"), f"kind of receivers.{name} is webhook, alertmanager or apprise")
        result[name] = _receiver(name, _checked(TABLES[kind], content, place), source)
    return result


def _receiver(name: str, table: ReceiverTable, source: TextSource) -> ReceiverConfig:
    place = ("receivers", name)
    kind = ReceiverKind(table.kind)
    given = table.url if isinstance(table.url, list) else [table.url]
    urls = tuple(source.resolve(url, (*place, "url")) for url in given)
    try:
        secret = None if table.secret is None else source.resolve(table.secret, (*place, "secret")).encode()
        headers = {key: source.resolve(value, (*place, "headers")) for key, value in table.headers.items()}
        config = ReceiverConfig(name, kind, urls, secret, headers, table.digest_above, table.resend_s)
        config.check()
    except ValueError as error:
        raise TableMistake((*place, "url"), f"url of receivers.{name}: {error}") from error
    return config


def _routes(tables: Any, receivers: Iterable[str]) -> tuple[AlertRoute, ...]:
    if not isinstance(tables, list):
        raise TableMistake(("routes",), "routes is a list of tables: write [[routes]]")
    if len(tables) > ROUTES_MAX:
        raise TableMistake(("routes",), f"there are more than {ROUTES_MAX} routes")
    names = tuple(receivers)
    result = []
    for number, content in enumerate(tables):
        place = ("routes", number)
        table = _checked(RouteTable, content, place)
        for receiver in table.receivers:
            if receiver not in names:
                alike = difflib.get_close_matches(receiver, names, 1)
                hint = f" Is it {alike[0]}?" if alike else ""
                raise TableMistake((*place, "receivers"), f"a route names a receiver that is none.{hint}".rstrip("."))
        for pattern in table.slugs:
            if not any(fnmatchcase(slug, pattern) for slug in SLUGS):
                raise TableMistake((*place, "slugs"), "a pattern of slugs fits no rule; docs/findings.md lists them")
        result.append(
            AlertRoute(
                tuple(table.receivers),
                frozenset(table.severities),
                tuple(table.slugs),
                tuple(table.topics),
                table.continues,
            )
        )
    return tuple(result)


def _checked(model: Any, content: Any, place: tuple[str | int, ...]) -> Any:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise reason_of(error, place) from error
