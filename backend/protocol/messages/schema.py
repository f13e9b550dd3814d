"""The message tables: what Kafka 4.3.1 declares, read once from `messages-4.3.1.jsonl`, as frozen values.

`extensions.json` adds tagged fields of our own, by message and field. Their tags begin at 100, far above Kafka's, whose
clients and brokers pass over tags that they do not know (KIP-482); they are written only where they say something.

First step of the codec: table -> `Schema` -> class (`build`) -> functions of one version (`backend.protocol.codegen`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

TABLE: Final = "messages-4.3.1.jsonl"
EXTENSIONS: Final = "extensions.json"
LATEST: Final = 0x7FFF  # versions are int16
ZERO_UUID: Final = bytes(16)
ARRAY: Final = "[]"
FRESH: Final = object()


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str | None) -> "Versions":
        """Of `3`, `3-12`, `3+`, `none` or nothing."""
        if text is None or text == "none":
            return cls(LATEST, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    `default` is a plain value, `()` for an empty list, `FRESH` for a struct with all its defaults, None for null.
    """

    name: str
    type: str  # without the [] of an array
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    fields: tuple["Field", ...]
    never_compact: bool = False  # keeps its plain length in flexible versions

    @property
    def is_struct(self) -> bool:
        return self.type == "struct"

    @property
    def class_name(self) -> str:
        """Name of the nested class: the field's name in CamelCase."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))

    @property
    def starts_as_struct(self) -> bool:
        """Whether a new message holds an empty struct here, not None and not a list."""
        return self.default is FRESH

    @property
    def is_nullable(self) -> bool:
        """Whether any version lets the field be null."""
        return self.nullable.first <= self.nullable.last

    @property
    def is_lazy(self) -> bool:
        """Whether the empty struct is only made when somebody looks: tagged structs are nearly always absent."""
        return self.starts_as_struct and self.tag is not None and not self.is_nullable


@dataclass(frozen=True, slots=True)
class Schema:
    """One message in all its versions."""

    group: str
    kind: str  # request, response or record
    name: str
    key: int | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


_ZERO: Final[Mapping[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "records": None,
}


def _default(row: Mapping[str, Any], kind: str, is_array: bool) -> Any:
    given = row.get("default")
    if "nullable" in row and "default" in row and given is None:
        return None
    if is_array:
        return ()
    if kind == "struct":
        return FRESH
    # The table prints a buffer or a value it could not read as a word; those start at zero.
    if given is None or (isinstance(given, str) and kind != "string"):
        return _ZERO.get(kind, 0)
    return given


# Kafka reads a request's client id before it knows whether it understands the header's version (KIP-482).
_NEVER_COMPACT: Final = frozenset({("RequestHeaderData", "client_id")})


def _fields(rows: Sequence[Mapping[str, Any]], owner: str, path: str) -> tuple[Field, ...]:
    """The fields of a message or, at `path`, of a struct in it, our own ones last."""
    return tuple(_field(row, owner, f"{path}.{row['name']}") for row in (*rows, *_extensions().get(path, ())))


def _field(row: Mapping[str, Any], owner: str, path: str) -> Field:
    text: str = row["type"]
    is_array = text.startswith(ARRAY)
    kind = text.removeprefix(ARRAY)
    return Field(
        name=row["name"],
        type=kind,
        is_array=is_array,
        versions=Versions.parse(row["versions"]),
        nullable=Versions.parse(row.get("nullable")),
        tag=row.get("tag"),
        default=_default(row, kind, is_array),
        fields=_fields(row.get("fields", ()), owner, path),
        never_compact=(owner, row["name"]) in _NEVER_COMPACT,
    )


@cache
def _extensions() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    extensions: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(
        files(__package__).joinpath(EXTENSIONS).read_text(encoding="utf-8")
    )
    return extensions


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    text = files(__package__).joinpath(TABLE).read_text(encoding="utf-8")
    rows = (json.loads(line) for line in text.splitlines())
    return {row["name"]: row for row in rows}


@cache
def schema(name: str) -> Schema:
    """The schema of one message; KeyError for a name the table does not have."""
    row = _rows()[name]
    return Schema(
        group=row["group"],
        kind=row["kind"],
        name=name,
        key=row.get("key"),
        versions=Versions.parse(row["versions"]),
        flexible=Versions.parse(row.get("flexible")),
        fields=_fields(row["fields"], name, name),
    )


@cache
def names(group: str | None = None, kind: str | None = None) -> tuple[str, ...]:
    """Names of the messages of a group and kind, in the order of the table."""
    return tuple(
        name
        for name, row in _rows().items()
        if (group is None or row["group"] == group) and (kind is None or row["kind"] == kind)
    )


@cache
def by_key(group: str, kind: str) -> Mapping[int, str]:
    """Message name of each key of a group and kind (of coordinator records: of their key)."""
    by_number: dict[int, str] = {}
    for name in names(group, kind):
        key = _rows()[name].get("key")
        if key is not None:
            by_number.setdefault(key, name)
    return by_number
