"""Files and folders of this product are their owner's alone: they hold records, tokens and what people did."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

# Rights that no file or folder is made with: every right of the group and of others.
UMASK: Final = 0o077
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def keep_files_private() -> None:
    """From now on this process, and those it starts, make files 0600 and folders 0700."""
    os.umask(UMASK)


def close_to_others(path: Path | str) -> str | None:
    """Lets only its owner enter a folder that every user of the machine may enter; a sentence about it.

    None when there is nothing to do: a folder that is open to its group alone was made so by a person, and one that
    takes files of everybody (sticky, as /tmp) is not this product's own.
    """
    folder = Path(path)
    try:
        mode = folder.stat().st_mode
    except OSError:
        return None
    if not mode & stat.S_IRWXO or mode & stat.S_ISVTX:
        return None
    try:
        folder.chmod(FOLDER_MODE | (mode & stat.S_ISGID))
    except OSError as error:
        return (
            f"Every user of this machine may read {folder}, and its mode cannot be changed ({error.strerror}): it holds"
            " records and tokens, have its owner run `chmod 700` on it."
        )
    return f"Every user of this machine could read {folder}; its mode is 0700 now."


def write_private(path: Path, text: str) -> None:
    """Writes a file for its owner alone, all or nothing, also when the machine stops. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    # The name is in the folder's own data.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
