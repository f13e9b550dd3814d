"""Carries out `ebbline remote`: reads the metadata topic, compares its segments with the remote storage's objects."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from rich.table import Table

from backend.cli.inspect.cluster_commands import parse_partition
from backend.cli.local.local_settings import remote_location, settings_beside_up
from backend.cli.remote.record_text import LineFormat, TopicRecord, document, line
from backend.cli.remote.segment_ledger import LedgerProblem, SegmentLedger, compare, segment_document
from backend.cli.remote.topic_reader import MetadataTopicReader, TopicUnavailable, read_properties
from backend.cli.shared import tables, value_text
from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import console, end, fail, show_json
from backend.data_folder.data_folder import DataFolder, DataFolderError
from backend.engine.ports.object_store import open_object_store
from backend.engine.remote.storage.store_errors import reason_of
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.supervisor.checks.store_check import diagnose_store
from backend.tiering.ids import uuid_text
from backend.tiering.remote_keys import ROOT

if TYPE_CHECKING:
    from backend.cli.remote.remote_options import DecodeOptions, SegmentOptions, TopicOptions
    from backend.settings.settings import Settings


def decode_topic(
    options: DecodeOptions,
    only: str | None,
    properties: list[str],
    partition: list[int] | None,
    max_messages: int | None,
    *,
    follow: bool,
) -> None:
    """The records of the metadata topic, a line each."""
    form = _line_format(properties)
    topic, number = _place(only)
    shown = unreadable = 0
    with _reader(options) as reader:
        partitions = partition or reader.partitions()
        try:
            for record in _records(reader, partitions, follow=follow):
                if topic is not None and not _is_of(record, topic, number):
                    continue
                text = json.dumps(document(record), ensure_ascii=False) if options.json_ else line(record, form)
                print(text, flush=follow)
                unreadable += record.is_unreadable
                shown += 1
                if shown == max_messages:
                    break
        except KeyboardInterrupt:
            pass
    end(attention=unreadable > 0)


def _records(reader: MetadataTopicReader, partitions: list[int], *, follow: bool) -> Iterator[TopicRecord]:
    yield from reader.records(partitions)
    if follow:
        yield from reader.tail(partitions)


def _line_format(properties: list[str]) -> LineFormat:
    form = LineFormat()
    for text in properties:
        try:
            form = form.with_property(text)
        except ValueError as error:
            fail(f"--property: {error}.", Exit.USAGE)
    return form


def ls(options: SegmentOptions, only: str | None) -> None:
    """The segments that the metadata topic tells of."""
    topic, number = _place(only)
    with _reader(options) as reader:
        ledger = SegmentLedger()
        ledger.apply(reader.records())
    segments = list(ledger.segments(topic, number))
    if options.json_:
        show_json({"items": [segment_document(segment) for segment in segments]})
    elif segments:
        out = console()
        out.print(_segment_table(segments))
        total = sum(segment.segment_size_bytes for segment in segments)
        out.print(f"\n{value_text.plural(len(segments), 'segment')}, {value_text.size(total)} of log.")
    else:
        print("The metadata topic tells of no such segment.")


def verify(options: SegmentOptions, only: str | None, remote: str | None) -> None:
    """The metadata topic against the objects of the remote tier."""
    topic, number = _place(only)
    location = remote or _default_location(options.data)
    with _reader(options) as reader:
        ledger = SegmentLedger()

        def inspect() -> tuple[int, int, list[LedgerProblem]]:
            # Objects first: whatever is listed was announced before, so only a living cluster can make a difference.
            objects = {key: size for key, size in remote_objects(location).items() if _is_below(key, topic, number)}
            ledger.apply(reader.records())
            segments = list(ledger.segments(topic, number))
            return len(segments), len(objects), compare(segments, objects)

        segments, objects, problems = inspect()
        if problems:
            # Copies and deletions went on meanwhile: only what is wrong twice is wrong.
            before = {(problem.problem, problem.key) for problem in problems}
            segments, objects, again = inspect()
            problems = [problem for problem in again if (problem.problem, problem.key) in before]
    if options.json_:
        show_json(
            {
                "location": location,
                "segments": segments,
                "objects": objects,
                "unreadable_records": ledger.unreadable,
                "items": [problem.document() for problem in problems],
            }
        )
    else:
        _print_verdict(location, segments, objects, ledger.unreadable, problems)
    end(attention=bool(problems))


def _print_verdict(location: str, segments: int, objects: int, unreadable: int, problems: list[LedgerProblem]) -> None:
    out = console()
    if problems:
        rows = ((problem.problem.value, problem.key.removeprefix(f"{ROOT}/"), problem.detail) for problem in problems)
        out.print(tables.table(["PROBLEM", "OBJECT", "DETAIL"], rows))
        out.print()
    if unreadable:
        out.print(
            f"{value_text.plural(unreadable, 'record')} of the metadata topic could not be read: see remote decode."
        )
    verdict = value_text.plural(len(problems), "problem") if problems else "All is there"
    counted = f"{value_text.plural(segments, 'segment')}, {value_text.plural(objects, 'object')}"
    out.print(f"{verdict}: {counted} at {value_text.printable_text(location)}.")


def _segment_table(segments: list[SegmentMetadata]) -> Table:
    return tables.table(
        ["PARTITION", "OFFSETS", "SIZE", "STATE", "EPOCHS", "BROKER", "SEGMENT"],
        (
            (
                f"{segment.topic_id_partition.topic}-{segment.topic_id_partition.partition}",
                f"[{value_text.offset(segment.start_offset)}, {value_text.offset(segment.end_offset + 1)})",
                value_text.size(segment.segment_size_bytes),
                tables.SEGMENT_STATES[segment.state],
                ",".join(str(epoch) for epoch, _ in segment.segment_leader_epochs),
                str(segment.broker_id),
                uuid_text(segment.segment_id),
            )
            for segment in segments
        ),
        right=["SIZE", "BROKER"],
    )


def remote_objects(location: str) -> dict[str, int]:
    """Every object of the tier with its bytes. About 300 bytes of memory each: 2 GB for a million segments."""
    if location == "memory://":
        fail("Objects in memory belong to the broker's process and cannot be looked at from here.", Exit.USAGE)
    # Opening a folder would make it.
    if "://" not in location and not Path(location).is_dir():
        fail(f"There is no folder {location}: name the remote tier's with --remote.", Exit.NOT_FOUND)
    try:
        return dict(open_object_store(location).list(ROOT))
    except (OSError, ValueError, BaseError) as error:
        cause = str(error) or type(error).__name__
        if "://" in location:
            fail(f"{diagnose_store(cause, location).sentence[:-1]}, or name another place with --remote.", Exit.AWAY)
        fail(
            f"The remote tier in {location} cannot be listed ({reason_of(cause)}): correct the folder or its rights,"
            " or name another place with --remote.",
            Exit.AWAY,
        )


def _is_below(key: str, topic: str | None, partition: int | None) -> bool:
    """Whether an object's folder, ``<topic>-<partition>-<topic id>``, is one that was asked for."""
    if topic is None:
        return True
    folder = key.removeprefix(f"{ROOT}/").partition("/")[0]
    # An id may contain dashes, but always has 22 characters.
    parsed = parse_partition(folder[:-23])
    return parsed is not None and parsed[0] == topic and partition in (None, parsed[1])


def _is_of(record: TopicRecord, topic: str, partition: int | None) -> bool:
    tip = record.topic_id_partition
    return tip is not None and tip.topic == topic and partition in (None, tip.partition)


def _place(text: str | None) -> tuple[str | None, int | None]:
    """`orders-3` as a partition; anything that does not end in a number as a topic."""
    if text is None:
        return None, None
    return parse_partition(text) or (text, None)


@contextmanager
def _reader(options: TopicOptions) -> Iterator[MetadataTopicReader]:
    """A failure is one line on stderr and the command's exit code."""
    named, config = options.bootstrap or os.environ.get("EBBLINE_BOOTSTRAP_SERVERS"), options.config
    try:
        if named:
            servers, expected = named, None
        else:
            settings = settings_beside_up(data_dir=options.data)
            servers, expected = _cluster_of(settings, options.data)
            config = config or settings.client_properties
        properties = read_properties(config) if config is not None else {}
        with MetadataTopicReader(servers, properties) as reader:
            print(
                f"Asked: {value_text.printable_text(servers)}, cluster {reader.cluster_id(expected)}.", file=sys.stderr
            )
            yield reader
    except TopicUnavailable as error:
        fail(str(error), Exit.AWAY)


def _cluster_of(settings: Settings, data: Path) -> tuple[str, str | None]:
    """Brokers and id of the data folder's cluster; without a folder, the brokers that `ebbline up` would have there."""
    try:
        identity = DataFolder(data).read_identity()
    except DataFolderError as error:
        fail(str(error), Exit.USAGE)
    if identity is None:
        return settings.bootstrap_servers, None
    if identity.brokers == 0 and settings.attach is None:
        fail(f"The folder {data} is of an attached cluster: name its brokers with --bootstrap-server.", Exit.USAGE)
    return settings.bootstrap_servers, identity.cluster_id


def _default_location(data: Path) -> str:
    settings = settings_beside_up(data_dir=data)
    location = remote_location(settings)
    if location is None and settings.attach is not None:
        fail("Where this cluster's remote tier is, only its brokers know: name it with --remote.", Exit.USAGE)
    return location or str(data / "remote")
