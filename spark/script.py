"""Small shell scripts that Spark runs in the place of a program."""

from __future__ import annotations

import os
from pathlib import Path


def write_script(script: Path, text: str) -> bool:
    """Writes it whole or not at all; whether it can be run, as its folder may be mounted "noexec". Raises OSError."""
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_suffix(f".{os.getpid()}")
    new.write_text(text)
    new.chmod(0o700)
    new.replace(script)  # another start may be running the old one
    return os.access(script, os.X_OK)
