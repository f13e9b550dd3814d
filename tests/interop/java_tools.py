"""Apache Kafka's own command-line tools, as they are in its jars; tests skip where the jars are not in the cache."""

from __future__ import annotations

import subprocess
import tempfile
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
# Beside the jars: what Java has loaded for the first tool that ran; others start in half the time with it.
# Java leaves it aside, silently, when it is not of these jars or of this Java.
SHARED_CLASSES: Final = "shared-classes.jsa"


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


def spoken(text: str) -> list[str]:
    """The lines that say something: neither empty nor frames of a stack."""
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]


class JavaTools:
    """The tools pointed at one cluster."""

    def __init__(self, libs: Path, bootstrap: str) -> None:
        self._libs, self.bootstrap = libs, bootstrap

    def _command(self, tool: str, *words: str, java_option: str) -> list[str]:
        options = [*TOOL_JVM_ARGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xlog:disable", java_option]
        java = java_command({"libs": str(self._libs)}, options, TOOL_CLASSES[tool])
        connection = [] if tool in TOOLS_WITHOUT_BOOTSTRAP else ["--bootstrap-server", self.bootstrap]
        if tool in TOOLS_WITH_BOOTSTRAP_LAST:
            return [*java, *words, *connection]
        return [*java, *connection, *words]

    @property
    def _shared_classes(self) -> Path:
        return self._libs.parent / SHARED_CLASSES

    def run(self, tool: str, *words: str, given: str = "", fails: bool = False, errors: bool = False) -> str:
        """Returns the output of the tool, with its error stream when it `fails` or is asked for `errors`.

        It must end well, or must not when it `fails`.
        """
        if self._shared_classes.exists():
            return self._run(self._command(tool, *words, java_option=self._with_shared), given, fails, errors)
        with tempfile.TemporaryDirectory(dir=self._libs.parent) as folder:
            made = Path(folder) / SHARED_CLASSES
            command = self._command(tool, *words, java_option=f"-XX:ArchiveClassesAtExit={made}")
            said = self._run(command, given, fails, errors)
            if made.exists():
                made.replace(self._shared_classes)
        return said

    def _run(self, command: list[str], given: str, fails: bool, errors: bool) -> str:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if fails or errors else "")

    @property
    def _with_shared(self) -> str:
        return f"-XX:SharedArchiveFile={self._shared_classes}"

    @contextmanager
    def running(self, tool: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The tool at work; ended with the block."""
        process = subprocess.Popen(
            self._command(tool, *words, java_option=self._with_shared),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
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
