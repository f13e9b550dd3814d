"""Decodes and encodes messages with kio, in a separate process: malformed input can abort kio's process.

Reads one JSON object per line, {"name", "version", "type", "hex"}, and answers each with {"hex", "values"} or
{"error"}. Run with the argument `list`, prints which names, versions and types kio knows.
"""

import io
import json
import sys
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType


def plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, UUID):
        return value.bytes.hex()
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    return value if value is None or isinstance(value, (bool, str, float)) else int(value)


def answer(row: dict[str, Any]) -> dict[str, Any]:
    kind: Any = EntityType[row["type"]]
    cls = load_entity_schema(row["name"], row["version"], kind)
    data = bytes.fromhex(row["hex"])
    entity, size = entity_reader(cls)(memoryview(data), 0)
    if size != len(data):
        return {"error": f"read {size} of {len(data)} bytes"}
    out = io.BytesIO()
    entity_writer(cls)(out, entity)
    return {"hex": out.getvalue().hex(), "values": plain(entity)}


def main() -> None:
    if sys.argv[1:] == ["list"]:
        schemas = [
            (name, version, kind.name)
            for name, versions in schema_name_map.items()
            for version, kinds in versions.items()
            for kind in kinds
        ]
        print(json.dumps(schemas))
        return
    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Exception as error:
            result = {"error": repr(error)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
