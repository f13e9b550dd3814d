"""Random messages in every version that kio and kafka-python share with us: they read what we write and write it back.

Both have their own tables and their own code, so equal bytes and equal values by name mean that all three agree.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl  # noqa: F401  (importing the modules registers their messages)
import pytest
from kafka.protocol.api_message import ApiMessage

from backend.protocol import codec
from backend.protocol.messages import message_class
from backend.protocol.messages.schema import names
from tests.effort import effort
from tests.properties.protocol.random_messages import as_values, random_message

ROUNDS = effort(4, 40)
KIO = Path(__file__).with_name("kio_oracle.py")
# kio takes the word of Kafka's files, in which these records are not nullable; Kafka's own classes write null there.
NEVER_NULL = {"FetchSnapshotResponse": "unaligned_records", "ShareFetchResponse": "records"}


def _without_null_records(message: Any, name: str) -> None:
    field = NEVER_NULL.get(name)
    if field is None:
        return
    for topic in getattr(message, "topics", None) or getattr(message, "responses", None) or []:
        for partition in topic.partitions:
            if getattr(partition, field) is None:
                setattr(partition, field, b"")


def _cases(name: str, version: int) -> Iterator[Any]:
    for seed in range(ROUNDS):
        message = random_message(Random(f"{name} {version} {seed}"), name, version)
        if name == "DescribeLogDirsResponse":
            for result in cast(Any, message).results:
                # Tagged fields of our own, which readers pass over and do not write again.
                result.set_aside, result.offline_logs = [], []
        yield message


def _run_kio(arguments: list[str], rows: list[dict[str, Any]]) -> Any:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run(
        [sys.executable, str(KIO), *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"kio ended with {done.returncode}: {done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def _our_name(kio_name: str, kind: str) -> str:
    ours = {name.lower(): name for name in names()}
    plain = kio_name.replace("_", "")
    return next(ours[key] for key in (plain + kind, plain, plain + "data") if key in ours)


def _agree(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two values that should be equal differ; theirs may lack fields or carry other names for some."""
    if isinstance(ours, dict):
        if theirs is None:
            return  # a tagged struct that was not written, which ours shows as its defaults
        for name, value in ours.items():
            for candidate in (name, name.removesuffix("_ms")):
                if candidate in theirs:
                    yield from _agree(value, theirs[candidate], f"{path}.{candidate}")
                    break
    elif isinstance(ours, list):
        if theirs is None or len(ours) != len(theirs):
            yield f"{path}: {len(ours)} items, theirs {theirs!r:.60}"
        else:
            for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from _agree(mine, other, f"{path}[{index}]")
    elif isinstance(ours, bytes) and theirs is None:
        if any(ours):  # both libraries give None for the zero uuid
            yield f"{path}: {ours.hex()} is none in theirs"
    elif isinstance(ours, bytes):
        if len(ours) == 8 and isinstance(theirs, float):
            return  # a float by its bits; the encoded bytes are compared
        other = theirs if isinstance(theirs, bytes) else bytes.fromhex(str(theirs).replace("-", ""))
        if ours != other:
            yield f"{path}: {ours.hex():.60}, theirs {other.hex():.60}"
    elif isinstance(theirs, set):  # kafka-python shows bit fields as the positions of their bits
        if {bit for bit in range(32) if ours >> bit & 1} != theirs:
            yield f"{path}: {ours:#x}, theirs {theirs}"
    elif ours != theirs and not (theirs is None and ours in (-1, -(1 << 31))):  # the defaults that stand for none
        yield f"{path}: {ours!r:.60}, theirs {theirs!r:.60}"


@pytest.mark.outside
def test_kio_reads_and_writes_the_same_bytes_in_every_version_it_has() -> None:
    schemas = _run_kio(["list"], [])[0]
    rows, messages = [], []
    for name, version, kind in schemas:
        ours = _our_name(name, kind)
        for message in _cases(ours, version):
            _without_null_records(message, ours)
            data = codec.encode(message, version)
            rows.append({"name": name, "version": version, "type": kind, "hex": data.hex()})
            messages.append(message)
    answers = _run_kio([], rows)
    wrong = [
        f"{row['name']} v{row['version']} {row['type']}: {answer.get('error') or answer['hex']}"
        for row, answer in zip(rows, answers, strict=True)
        if answer.get("hex") != row["hex"]
    ]
    assert not wrong, f"{len(wrong)} of {len(rows)}: {wrong[:5]}"
    # Names that both have must hold the same values: equal bytes alone would not show two swapped fields.
    differ = [
        f"{row['name']} v{row['version']}{text}"
        for row, answer, message in zip(rows, answers, messages, strict=True)
        for text in _agree(as_values(message), answer["values"])
    ]
    assert not differ, f"{len(differ)}: {differ[:5]}"
    assert len(schemas) >= 600
    assert len(rows) == ROUNDS * len(schemas)


def _kafka_python_classes() -> dict[str, Any]:
    classes: dict[str, Any] = {}
    waiting = [ApiMessage]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if getattr(cls, "_json", None) and cls._class_version is None:
                classes[cls.__name__] = cls
    return classes


def _plain(value: Any) -> Any:
    """A decoded message of kafka-python as dicts; its own `to_dict` turns bytes into text and only gives the names."""
    if hasattr(value, "to_dict"):
        return {name: _plain(getattr(value, name)) for name in value.to_dict()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, UUID):
        return value.bytes
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def test_kafka_python_reads_and_writes_the_same_bytes_in_every_version_it_has() -> None:
    wrong, compared, pairs = [], 0, 0
    for name, theirs in _kafka_python_classes().items():
        if name not in names():
            continue
        ours = message_class(name)
        for version in range(ours.MIN_VERSION, min(ours.MAX_VERSION, theirs.max_version) + 1):
            pairs += 1
            for message in _cases(name, version):
                if name == "ApiVersionsResponse":
                    message.error_code = 0  # theirs reads one with an error as version 0
                data = codec.encode(message, version)
                decoded = theirs.decode(data, version=version)
                decoded._header = None
                if bytes(decoded.encode(version=version)) != data:
                    wrong.append(f"{name} v{version}: other bytes")
                values = as_values(message)
                wrong += [f"{name} v{version}{text}" for text in _agree(values, _plain(decoded))]
                compared += 1
    assert not wrong, f"{len(wrong)} of {compared}: {wrong[:5]}"
    assert pairs >= 450
