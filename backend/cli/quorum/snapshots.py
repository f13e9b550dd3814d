"""`ebbline snapshot ls|show|verify`: the metadata snapshots in a folder, read as files, whether a node runs or not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import DATA_DEFAULT, DataOption, JsonOption, console, fail, show_json
from backend.cli.shared.tables import table
from backend.cli.shared.value_text import moment, size

if TYPE_CHECKING:
    from backend.engine.raft.snapshot_files import SnapshotContent, SnapshotId

# The engine is imported where it is used: every command of `ebbline` would wait for it.
snapshot_app = typer.Typer(help="Snapshots of the cluster's metadata (KIP-630).", no_args_is_help=True)

NodeOption = Annotated[int, typer.Option("--node", min=1, help="Node of the data folder's cluster.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A .checkpoint file.")]


def _folder(data: Path, node: int) -> Path:
    return data / "brokers" / str(node) / "log" / "__cluster_metadata-0"


def _snapshots(folder: Path) -> list[tuple[SnapshotId, Path]]:
    from backend.engine.raft.snapshot_files import parse_file_name

    try:
        snapshots = [(parsed, path) for path in folder.iterdir() if (parsed := parse_file_name(path.name)) is not None]
    except OSError as error:
        fail(f"The folder {folder} cannot be read ({error.strerror}): name another with --data or --node.", Exit.USAGE)
    return sorted(snapshots)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fail(f"{path} cannot be read ({error.strerror}).", Exit.USAGE)


def _content(path: Path) -> SnapshotContent:
    from backend.engine.raft.snapshot_files import BadSnapshot, read_content

    try:
        return read_content(_read(path))
    except BadSnapshot as error:
        fail(f"{path} is no whole snapshot: {error}.", Exit.ATTENTION)


@snapshot_app.command("ls")
def list_snapshots(data: DataOption = DATA_DEFAULT, node: NodeOption = 1, json_: JsonOption = False) -> None:
    """The snapshots of a node, oldest first."""
    rows = [
        {
            "file": str(path),
            "end_offset": snapshot_id.end_offset,
            "epoch": snapshot_id.epoch,
            "size_bytes": path.stat().st_size,
            "written_ms": path.stat().st_mtime_ns // 1_000_000,
        }
        for snapshot_id, path in _snapshots(_folder(data, node))
    ]
    if json_:
        show_json({"items": rows})
        return
    if not rows:
        print(f"There is no snapshot of node {node} yet.")
        return
    cells = [
        (
            str(row["end_offset"]),
            str(row["epoch"]),
            size(int(str(row["size_bytes"]))),
            moment(int(str(row["written_ms"]))),
            str(row["file"]),
        )
        for row in rows
    ]
    console().print(table(("end offset", "epoch", "size", "written", "file"), cells, right=("end offset", "epoch")))


@snapshot_app.command()
def show(file: FileArgument, json_: JsonOption = False) -> None:
    """What a snapshot holds: records by kind, and the time of the last one that it stands for."""
    content = _content(file)
    kinds = Counter(type(record).__name__ for batch in content.batches for record in batch)
    if json_:
        show_json({"last_contained_ms": content.last_contained_ms, "records": dict(sorted(kinds.items()))})
        return
    print(f"{content.record_count} records; the last that it stands for is of {moment(content.last_contained_ms)}")
    rows = [(kind, str(count)) for kind, count in sorted(kinds.items())]
    console().print(table(("kind", "records"), rows, right=("records",)))


@snapshot_app.command()
def verify(files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files.")]) -> None:
    """Whether files are whole snapshots whose records make an image. Ends with 1 when one is not."""
    from backend.engine.controller.image.snapshot_images import image_of_snapshot
    from backend.engine.raft.snapshot_files import BadSnapshot, parse_file_name

    bad = 0
    for path in files:
        data = _read(path)
        unknown: list[object] = []
        try:
            snapshot_id = parse_file_name(path.name)
            if snapshot_id is None:
                raise BadSnapshot("its name is not <end offset>-<epoch>.checkpoint")
            image, _ = image_of_snapshot(data, snapshot_id, "", report_unknown=unknown.append)
        except BadSnapshot as error:
            bad += 1
            print(f"{path}: bad: {error}")
            continue
        partitions = sum(len(topic.partitions) for topic in image.topics.values())
        more = f", {len(unknown)} records of unknown kinds" if unknown else ""
        print(f"{path}: whole: {len(image.brokers)} brokers, {len(image.topics)} topics, {partitions} partitions{more}")
    if bad:
        raise typer.Exit(Exit.ATTENTION)
