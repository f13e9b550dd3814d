"""Runs blocks in the folder in which a reader would stand: `ebbline` on the path, `.ebbline` beside, no variables."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import Block, difference

COMMAND_TIMEOUT_S = 120.0
RETRY_S = 0.5


class PageIsWrong(AssertionError):
    """The page says something else than the product does: page, line, command, difference."""


@dataclass
class Session:
    """The blocks of all pages, one after the other. `moved`: the port of this run for each that the pages name."""

    folder: Path
    moved: dict[int, int]
    background: list[tuple[Block, subprocess.Popen[str]]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Returns the variables without the settings of the shell that runs the tests: a page says what it needs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EBBLINE_", "AWS_"))}
        return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}

    def here(self, text: str) -> str:
        """Text of a page with the ports of this run."""
        return re.sub(r"\b\d{4,5}\b", lambda number: str(self.moved.get(int(number[0]), number[0])), text)

    def run(self, block: Block) -> None:
        """Raises PageIsWrong."""
        if block.directive.file:
            (self.folder / block.directive.file).write_text(self.here("\n".join(block.lines) + "\n"))
        elif block.language == "python":
            self._run_script(block, [sys.executable, "-c", self.here("\n".join(block.lines))])
        elif block.language == "sh":
            self._run_script(block, ["bash", "-euo", "pipefail", "-c", self.here("\n".join(block.lines))])
        else:
            self._run_console(block)

    def _run_script(self, block: Block, command: list[str]) -> None:
        if block.directive.background:
            # The block has its process group, so that the processes that it starts end with it.
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
            self.background.append((block, process))
            return
        code, printed = self._execute(command)
        if code != block.directive.exit_code:
            raise PageIsWrong(f"{block.name} ends with {code}:\n{printed}")

    def _run_console(self, block: Block) -> None:
        commands = block.commands()
        for number, command in enumerate(commands):
            code = block.directive.exit_code if number == len(commands) - 1 else 0
            expected = tuple(map(self.here, command.expected))

            def wrong(text: str = command.text, code: int = code, expected: tuple[str, ...] = expected) -> str | None:
                ended, printed = self._execute(["bash", "-uc", self.here(text)])
                if ended != code:
                    return f"it ends with {ended}, not {code}:\n{printed}"
                return difference(expected, printed)

            problem = _tried(wrong, block.directive.wait_s)
            if problem is not None:
                raise PageIsWrong(f"{block.name}\n$ {command.text}\n{problem}")

    def _execute(self, command: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout

    def end_page(self) -> None:
        """Ends the blocks that run in the background. Raises PageIsWrong if one of them had failed before."""
        started, self.background = self.background, []
        failed = [f"{block.name} ended with {process.returncode}" for block, process in started if process.poll()]
        for _, process in started:
            _signal_group(process, signal.SIGINT)
        for _, process in started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()
        if failed:
            raise PageIsWrong("\n".join(failed))


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    # A block that has ended by itself may have left no process of its group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _tried(wrong: Callable[[], str | None], wait_s: int) -> str | None:
    until_s = time.monotonic() + wait_s
    while (problem := wrong()) is not None and time.monotonic() < until_s:
        time.sleep(RETRY_S)
    return problem
