"""Plays many incidents: those of one form on one rig, which is made again when an incident has spoilt it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.incidents.expectations import Incident, RigForm, Where
from tests.incidents.judge import judge
from tests.incidents.player import NotClean, Player
from tests.incidents.results import Result, commit_id, result_of
from tests.incidents.rigs import Rig
from tests.incidents.rigs.small_disks import CannotPlay

RIGS_PER_INCIDENT = 2
"""A rig on which something is open before an incident is given up for a new one, once."""


def new_rig(where: Where, folder: Path, form: RigForm) -> Rig:
    """A cluster under load with the product beside it, and nothing open."""
    if where is Where.EMBEDDED:
        from tests.incidents.rigs.embedded_rig import EmbeddedRig

        return EmbeddedRig(folder, form)
    from tests.incidents.rigs.apache_rig import ApacheRig

    return ApacheRig(folder, form)


class Rigs:
    """The rig of now. A context manager."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._form: RigForm | None = None
        self._rig: Rig | None = None
        self._folder: Path | None = None

    def __enter__(self) -> Rigs:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def of(self, form: RigForm) -> Rig:
        """The one of before, where it has this form; else a new one."""
        if self._rig is None or self._form != form:
            self.discard()
            self._folder = Path(tempfile.mkdtemp(prefix="ebbline-incidents-"))
            self._rig, self._form = new_rig(self._where, self._folder, form), form
        return self._rig

    def discard(self) -> None:
        rig, folder, self._rig, self._folder = self._rig, self._folder, None, None
        try:
            if rig is not None:
                rig.close()
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def in_order(incidents: Sequence[Incident], where: Where) -> list[Incident]:
    """The incidents of this cluster: those of one form after each other, and those that spoil their rig last."""
    forms = list(dict.fromkeys(incident.form for incident in incidents))
    played = [incident for incident in incidents if where in incident.on]
    return sorted(played, key=lambda incident: (forms.index(incident.form), incident.spoils))


def play_all(incidents: Sequence[Incident], where: Where) -> Iterator[Result]:
    """One after the other; each result as soon as it is there."""
    commit = commit_id()
    with Rigs(where) as rigs:
        for incident in in_order(incidents, where):
            print(f"{where.value}: {incident.name}", file=sys.stderr, flush=True)
            result = play(incident, where, rigs, commit)
            print(report(result), file=sys.stderr, flush=True)
            yield result


def play(incident: Incident, where: Where, rigs: Rigs, commit: str) -> Result:
    """One incident; an error of a step is a result as well."""
    for attempt in range(RIGS_PER_INCIDENT):
        try:
            rig = rigs.of(incident.form)
            timeline = Player(rig, incident).play()
            verdict = judge(incident, timeline)
            if incident.spoils:
                rigs.discard()
            else:
                rig.tidy()
            return result_of(incident, where, commit, verdict)
        except NotClean as reason:
            rigs.discard()
            if attempt + 1 == RIGS_PER_INCIDENT:
                false = [f"{reason}: open before the incident began"]
                return Result(incident=incident.name, where=where.value, commit=commit, false_findings=false)
        except CannotPlay as reason:
            rigs.discard()
            return Result(incident=incident.name, where=where.value, commit=commit, not_played=str(reason))
        except Exception as error:
            traceback.print_exc()
            rigs.discard()
            complaint = f"the player failed: {type(error).__name__}: {error}"
            return Result(incident=incident.name, where=where.value, commit=commit, complaints=[complaint])
    raise AssertionError("unreachable")


def report(result: Result) -> str:
    """A result for people."""
    if result.not_played:
        return f"  not played: {result.not_played}"
    words = [f"  {'right' if result.passed else 'WRONG'}"]
    words += [f"{name} after {seconds} s" for name, seconds in result.seconds.items()]
    words += [f"never {name}" for name in result.missed]
    words += [f"false: {finding}" for finding in result.false_findings]
    words += list(result.complaints)
    return "\n      ".join(words)
