"""Plays an incident on a rig and records it. It judges nothing: it only knows how long to wait for what."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.incidents.expectations import Expected, Incident
from tests.incidents.patterns import is_expected
from tests.incidents.recorder import POLL_S, Recorder
from tests.incidents.rigs import Rig
from tests.incidents.steps import PAUSE, Phase, Step
from tests.incidents.timeline import SeenFinding, StepRun, Timeline

# An incident begins when nothing is open. What a failed copy left goes with the retention of `orders`: 20 MiB at 200 kB
# a second are 105 s.
CLEAN_S: Final = 150.0
# Findings of the preparation, such as copies that are behind for some seconds, get this time to close.
PREPARED_S: Final = 20.0
# As long again as the expectation allows, so that the result says how late it was.
PATIENCE: Final = 2.0
# A quick play keeps the order of things and leaves out the time in which what is false would come.
QUICK_PAUSE_S: Final = 8.0
QUICK_HOLD_S: Final = 3.0
# `ebbline status` in an incident of which nothing is expected: a process of a second on two cores.
STATUS_EVERY_S: Final = 30.0


class NotClean(Exception):
    """Findings are open before the incident begins; a rig like that is of no use."""


class Player:
    """Plays one incident."""

    def __init__(self, rig: Rig, incident: Incident, *, quick: bool = False) -> None:
        self._rig, self._incident, self._quick = rig, incident, quick
        self._runs: list[StepRun] = []
        self._names: dict[str, str] = {}
        self._status_s = 0.0

    def play(self) -> Timeline:
        """Raises NotClean before anything is done; whatever else a step raises ends the incident and the rig."""
        product = self._rig.product
        with Recorder(product, reads_groups=bool(self._incident.readers)) as recorder:
            if not recorder.wait(lambda: bool(recorder.reads) and not recorder.open_now(), CLEAN_S):
                raise NotClean(", ".join(finding.name for finding in recorder.open_now()))
            # The first heartbeat comes some seconds after a start: of a rig without one no silence can be seen.
            recorder.wait(lambda: bool(product.receiver.beats), CLEAN_S)
            self._do(recorder, Phase.PREPARE)
            recorder.wait(lambda: not self._unexpected(recorder.open_now()), PREPARED_S)
            sent_before = len(product.receiver.notices)
            self._do(recorder, Phase.BREAK)
            self._wait_until_found(recorder)
            self._stay(recorder, self._hold_s(self._incident.hold_s))
            recorder.ask_status()
            self._do(recorder, Phase.MEND)
            self._wait_until_closed(recorder)
            self._stay(recorder, self._hold_s(self._incident.watch_s))
        missing = 0 if self._incident.loses else self._rig.missing_records()
        return Timeline(
            steps=tuple(self._runs),
            reads=tuple(recorder.reads),
            notices=tuple(product.receiver.notices[sent_before:]),
            commands=tuple(recorder.commands),
            names=self._names,
            readers=frozenset(recorder.readers),
            missing_records=missing,
            beats=tuple(product.receiver.beats),
        )

    def _do(self, recorder: Recorder, phase: Phase) -> None:
        for step in self._incident.steps:
            if step.phase is phase:
                began_s = time.monotonic()
                self._carry_out(recorder, step)
                self._runs.append(StepRun(step, began_s, time.monotonic()))
                print(f"    {phase}: {step}, {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True)

    def _carry_out(self, recorder: Recorder, step: Step) -> None:
        if step.operation == PAUSE:
            seconds = float(step.arguments["seconds"])
            self._stay(recorder, min(seconds, QUICK_PAUSE_S) if self._quick else seconds)
            return
        facts = getattr(self._rig, step.operation)(**step.arguments)
        self._names |= facts or {}

    def _stay(self, recorder: Recorder, seconds: float) -> None:
        """Lets time pass; of an incident in which nothing is wrong `ebbline status` is asked meanwhile."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._incident.quiet and time.monotonic() - self._status_s >= STATUS_EVERY_S and self._runs:
                self._status_s = time.monotonic()
                recorder.ask_status()
            time.sleep(min(left_s, POLL_S))

    def _hold_s(self, seconds: float) -> float:
        return min(seconds, QUICK_HOLD_S) if self._quick else seconds

    def _unexpected(self, findings: Sequence[SeenFinding]) -> list[SeenFinding]:
        """Findings that the incident neither expects nor allows."""
        rows = [row.slug for row in self._incident.expected] + [row.slug for row in self._incident.allowed]
        slugs = {slug for row in rows for slug in row.split("|")}
        return [finding for finding in findings if finding.slug not in slugs]

    def _shown(self, findings: Sequence[SeenFinding], expected: Expected, pattern: str) -> bool:
        return any(is_expected(expected, pattern, finding, self._names) for finding in findings)

    def _wait_until_found(self, recorder: Recorder) -> None:
        """Each for as long as its time allows, and as long again."""
        labels = {run.step.label: run.began_s for run in self._runs}
        broke_s = next(run.began_s for run in self._runs if run.step.phase is Phase.BREAK)
        for expected in self._incident.expected:
            since_s = labels[expected.since] if expected.since else broke_s
            for pattern in expected.objects:

                def opened(expected: Expected = expected, pattern: str = pattern) -> bool:
                    reads = [read for read in recorder.reads if read.at_s >= broke_s]
                    return any(self._shown(read.findings, expected, pattern) for read in reads)

                recorder.wait(opened, since_s + PATIENCE * expected.within_s - time.monotonic())

    def _wait_until_closed(self, recorder: Recorder) -> None:
        ended_s = time.monotonic()
        for expected in self._incident.expected:
            if expected.cleared_within_s is None:
                continue
            for pattern in expected.objects:

                def closed(expected: Expected = expected, pattern: str = pattern) -> bool:
                    read = recorder.reads[-1]
                    return read.at_s > ended_s and not self._shown(read.findings, expected, pattern)

                recorder.wait(closed, ended_s + PATIENCE * expected.cleared_within_s - time.monotonic())
