"""Apache Kafka's own command-line tools, as they are in its jars; tests skip where the jars are not in the cache."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.oracle.apache_kafka import (
    DEFAULT_VERSION,
    TOOL_CLASSES,
    TOOL_JVM_ARGS,
    TOOLS_WITH_BOOTSTRAP_LAST,
    TOOLS_WITHOUT_BOOTSTRAP,
    Unavailable,
    java_command,
    kafka_folder,
    require_program,
)

TIMEOUT_S: Final = 90.0


def libraries() -> Path:
    """The folder of the jars; skips the test when it, or Java, is not there."""
    folder = kafka_folder(DEFAULT_VERSION, None)
    try:
        require_program("java")
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka is unavailable: {reason}")
    if not (folder / "complete").exists():
        pytest.skip("Apache Kafka is unavailable: fetch its jars with `python tests/oracle/apache_kafka.py jars`")
    return folder / "libs"


class JavaTools:
    """The tools pointed at one cluster."""

    def __init__(self, libs: Path, bootstrap: str) -> None:
        self._libs, self.bootstrap = libs, bootstrap

    def _command(self, tool: str, *words: str) -> list[str]:
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        java = java_command({"libs": str(self._libs)}, [*TOOL_JVM_ARGS, logging], TOOL_CLASSES[tool])
        connection = [] if tool in TOOLS_WITHOUT_BOOTSTRAP else ["--bootstrap-server", self.bootstrap]
        if tool in TOOLS_WITH_BOOTSTRAP_LAST:
            return [*java, *words, *connection]
        return [*java, *connection, *words]

    def run(self, tool: str, *words: str, given: str = "", fails: bool = False) -> str:
        """What the tool prints; it must end well, or must not when it `fails`."""
        done = subprocess.run(
            self._command(tool, *words), input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert (done.returncode != 0) == fails, f"{tool} {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if fails else "")

    @contextmanager
    def running(self, tool: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The tool at work; ended with the block."""
        process = subprocess.Popen(
            self._command(tool, *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
            assert process.stdout is not None
            process.stdout.close()


def table(text: str) -> list[dict[str, str]]:
    """Rows of a tool's table by the names in its heading."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heading = next(at for at, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[heading], line, strict=False)) for line in lines[heading + 1 :]]
