"""Entry point of the `ebbline` command: what takes longest of `ebbline up` begins before the commands are imported."""

from __future__ import annotations

import sys
from typing import Final

from backend.runtime.private_files import keep_files_private

# Commands that write into the data folder, or copy what is in it.
WRITERS: Final = frozenset({"up", "broker", "db", "pipeline"})


def main() -> None:
    """Runs the command that the process was started with."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in WRITERS:
        keep_files_private()
    if arguments[:1] != ["up"] or "--help" in arguments:
        from backend.cli.main import app

        app()
        return

    from backend.supervisor.children.prestart import prestarted_backend

    # Imports the engine on the other core while this process imports, checks and writes.
    with prestarted_backend() as prestarted:
        from backend.cli.main import app

        app(obj=prestarted)


if __name__ == "__main__":
    main()
