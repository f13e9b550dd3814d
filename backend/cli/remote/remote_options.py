"""Options that the commands of `ebbline remote` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from backend.cli.shared.options import DATA_DEFAULT, DataOption


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """The Kafka whose metadata topic is read."""

    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            help="host:port of any Kafka (default $EBBLINE_BOOTSTRAP_SERVERS, else the brokers of `ebbline up` here).",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--command-config", help="File of client settings, name=value lines in librdkafka's names."),
    ] = None
    data: DataOption = DATA_DEFAULT


@dataclass(frozen=True, kw_only=True)
class _LineOutput:
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line, all fields.")] = False


@dataclass(frozen=True, kw_only=True)
class _ScriptOutput:
    json_: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False


@dataclass(frozen=True, kw_only=True)
class DecodeOptions(TopicOptions, _LineOutput):
    """The options of a command that prints records."""


@dataclass(frozen=True, kw_only=True)
class SegmentOptions(TopicOptions, _ScriptOutput):
    """The options of a command that answers about segments."""
