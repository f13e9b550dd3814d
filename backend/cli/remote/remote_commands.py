"""`ebbline remote`: the metadata topic of any Kafka in readable form, and its segments against the remote storage.

All of it only reads. The embedded engine is asked like any other Kafka: by its brokers.
"""

from __future__ import annotations

from typing import Annotated

import typer

from backend.cli.remote.remote_options import DecodeOptions, SegmentOptions
from backend.cli.shared.options import with_options

remote_app = typer.Typer(help="Remote log metadata and remote segments of any Kafka; only looks.", no_args_is_help=True)

PartitionFilter = Annotated[
    str | None, typer.Argument(metavar="[TOPIC[-PARTITION]]", help="Only of this topic or partition.")
]


@remote_app.command("decode")
@with_options
def decode_topic(
    options: DecodeOptions,
    only: PartitionFilter = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            help="print.partition, print.message.offset, print.version, print.all.event.value.fields =true|false;"
            " separator=TEXT. May be given several times.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only these partitions of the metadata topic.")
    ] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes; Ctrl-C ends.")] = False,
) -> None:
    """The records of __remote_log_metadata, readable. Ends with 1 when some could not be read."""
    # The client, numpy and the object store are imported where they are used: every command would wait for them.
    from backend.cli.remote import topic_tools

    topic_tools.decode_topic(options, only, properties or [], partition, max_messages, follow=follow)


@remote_app.command("ls")
@with_options
def ls(options: SegmentOptions, only: PartitionFilter = None) -> None:
    """The remote segments that the metadata topic tells of."""
    from backend.cli.remote import topic_tools

    topic_tools.ls(options, only)


@remote_app.command("verify")
@with_options
def verify(
    options: SegmentOptions,
    only: PartitionFilter = None,
    remote: Annotated[
        str | None,
        typer.Option(help="Folder or URL such as s3://bucket/prefix (default: the remote tier of `ebbline up` here)."),
    ] = None,
) -> None:
    """Compare the metadata topic with the objects of the remote tier: what is missing, orphaned or of another size.

    Changes nothing. Ends with 1 when something is wrong.
    """
    from backend.cli.remote import topic_tools

    topic_tools.verify(options, only, remote)
