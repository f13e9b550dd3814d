"""Judges each round by the rules and keeps the table of findings: reads what the rules need, writes what changed.

It works beside the observer: a round that arrives while the database is slow takes the place of the one that waits, so
neither rounds nor memory pile up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from backend.control.alerts.notices import OpenAlerts, open_alerts, open_counts, withheld_keys
from backend.control.control_database import Database, DatabaseAway
from backend.control.findings.catalogue import LIVENESS_RULES, OWN_SLUGS, RULES, FindingLane, lane_of
from backend.control.findings.evaluate import Changes, candidates, compare, retained
from backend.control.findings.finding_context import (
    Candidate,
    FindingContext,
    FindingKey,
)
from backend.control.findings.open_in_memory import AWAY, OpenInMemory, database_away
from backend.control.findings.rule_settings import adjusted
from backend.control.findings.thresholds import RuleSettings
from backend.control.findings.unseen_findings import unseen
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.control.observer.watches.finding_contexts import FindingContexts, ObservedLiveness, ObservedRound
from backend.control.wall_clock import now_ms
from backend.store import tables as t
from backend.store.connection.database import reading, writing
from backend.store.connection.database_faults import first_line
from backend.store.queries import findings as queries
from backend.store.queries import maintenance
from backend.store.queries.findings import Finding
from backend.store.writes import cluster_rows, finding_rows

# Closed findings stay a year: 100 a day of 1 kB are 36 MB.
KEEP_CLOSED_MS: Final = 365 * 86_400_000
PRUNE_INTERVAL_MS: Final = 3_600_000
PIPELINE_RETURNS_MS: Final = 20_000
SILENT_OBSERVER: Final[FindingKey] = ("observer-down", "observer")
PIPELINE_SLUGS: Final = frozenset({"pipeline-behind", "pipeline-down"})
PROBE_INTERVAL_MS: Final = 5_000
RETRY_S: Final = 2.0
# A server that is away refuses at once.
WAITED_S: Final = 1.0
# Longer than any hold.
HOLD_MS_MAX: Final = 86_400_000
# 10,000 partitions with 3 replicas take 0.2 s of a core: then they are judged every 4 s, not every 2.
SHARE_MAX: Final = 0.05
PAUSE_S_MAX: Final = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """The candidates of one lane, and the moment of the facts that they rest on."""

    at_ms: int
    candidates: Mapping[FindingKey, Candidate]


def _retained(open_findings: Sequence[Finding]) -> dict[FindingKey, Candidate]:
    """The open findings of liveness as they were, but for that of the observer."""
    own = ((finding.slug, finding.object, finding) for finding in open_findings)
    return {
        (slug, object_): retained(finding)
        for slug, object_, finding in own
        if lane_of(slug) is FindingLane.LIVENESS and (slug, object_) != SILENT_OBSERVER
    }


class FindingWatch:
    """Keeps the findings of one cluster. Belongs to one event loop; `run` is the only writer of opening and closing."""

    def __init__(
        self,
        database: Database,
        cluster_id: str,
        *,
        attached: bool = False,
        notify: Callable[[OpenAlerts], None] = lambda _: None,
        rule_settings: Callable[[], RuleSettings] = RuleSettings,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """`notify` is given what is open after each round, once it is stored. `monotonic_ms` measures holds."""
        self._notify = notify
        self._monotonic_ms = monotonic_ms
        self._database = database
        self._cluster_id = cluster_id
        self._rule_settings = rule_settings
        self._contexts = FindingContexts(database, cluster_id, attached=attached, rule_settings=rule_settings)
        self._newest: tuple[ObservedRound, int] | None = None
        self._newest_liveness: ObservedLiveness | None = None
        self._arrived = asyncio.Event()
        self._round_due_s = 0.0
        self._verdicts: dict[FindingLane, _Verdicts] = {}
        self._changes = Changes()
        self._missing_rights: Sequence[MissingRight] = ()
        self._pruned_ms = self._wrote_ms = 0
        self._failed_ms = -HOLD_MS_MAX  # by the monotonic clock: the last attempt that the database did not take
        self._alerts = OpenAlerts()
        self._open = OpenInMemory()
        self._waits_since_ms: int | None = None
        # While the database is away: an attempt to write, which may wait ten seconds for a lock.
        self._attempt: asyncio.Task[bool] | None = None
        self._away_reason = ""
        self.rounds = 0
        self.open_counts: Mapping[tuple[str, str], int] = {}

    def submit(self, seen: ObservedRound) -> None:
        """The newest round; never waits."""
        now_ms = self._monotonic_ms()
        self._newest = seen, now_ms
        if self._waits_since_ms is None:
            self._waits_since_ms = now_ms
        self._arrived.set()

    def submit_liveness(self, seen: ObservedLiveness) -> None:
        """The newest liveness; never waits."""
        self._newest_liveness = seen
        self._arrived.set()

    @property
    def unstored(self) -> list[Finding]:
        """Findings that opened while the database is away, and that it does not have; their numbers are negative."""
        return self._open.unstored

    @property
    def behind_ms(self) -> int:
        """Time since the oldest round that is not judged and stored; 0: all are."""
        return 0 if self._waits_since_ms is None else self._monotonic_ms() - self._waits_since_ms

    async def run(self) -> None:
        """Judges rounds, and between them who is alive, until it is cancelled."""
        try:
            await self._run()
        finally:
            if self._attempt is not None:
                self._attempt.cancel()
                self._attempt = None

    async def _run(self) -> None:
        while True:
            await self._work()
            if not self._takes_writes():
                await self._without_database()
                continue
            began_s, clock_ms = time.monotonic(), self._monotonic_ms()
            liveness, self._newest_liveness = self._newest_liveness, None
            newest = None
            if began_s >= self._round_due_s:
                newest, self._newest = self._newest, None
            if newest is None and liveness is None:
                continue
            times_ms = [newest[0].round.at_ms] if newest is not None else []
            times_ms += [liveness.liveness.at_ms] if liveness is not None else []
            at_ms = max(times_ms)
            try:
                self._alerts = await self._database.observe(
                    partial(self._judge, None if newest is None else newest[0], liveness, at_ms, clock_ms)
                )
                self._notify(self._alerts)
                if newest is not None:
                    self._waits_since_ms = None if self._newest is None else self._newest[1]
                    self.rounds += 1
                    took_s = time.monotonic() - began_s
                    self._round_due_s = time.monotonic() + min(PAUSE_S_MAX, took_s / SHARE_MAX - took_s)
            except DatabaseAway as error:
                _log.debug("the findings of this round are not stored: %s", error)
                self._away_reason = str(error)
                self._alerts = self._judge_in_memory(liveness, str(error), at_ms, clock_ms)
                self._notify(self._alerts)
                self._attempt = asyncio.create_task(self._attempt_to_write(), name="findings-attempt")
            except SQLAlchemyError as error:
                _log.error("The findings of a round were refused by the database: %s", first_line(error))
                await asyncio.sleep(RETRY_S)

    def _takes_writes(self) -> bool:
        """Whether the database is to be used now: not while an attempt to write waits, or after one that waited."""
        if self._attempt is None:
            return True
        if not self._attempt.done():
            return False
        waited = self._attempt.exception() is None and self._attempt.result()
        self._attempt = asyncio.create_task(self._attempt_to_write(), name="findings-attempt") if waited else None
        return not waited

    async def _attempt_to_write(self) -> bool:
        """Whether it waited for a lock and did not get it: the next write would wait as long."""

        def touch() -> None:
            with writing(self._database.engine) as connection:
                cluster_rows.touch(connection)

        await asyncio.sleep(RETRY_S)
        began_s = time.monotonic()
        try:
            await self._database.observe(touch)
        except DatabaseAway as error:
            self._away_reason = str(error)
            return time.monotonic() - began_s >= WAITED_S
        return False

    async def _without_database(self) -> None:
        """Judges who is alive while the database is away; the newest round waits until it is back."""
        liveness, self._newest_liveness = self._newest_liveness, None
        clock_ms = self._monotonic_ms()
        at_ms = liveness.liveness.at_ms if liveness is not None else now_ms()
        self._alerts = self._judge_in_memory(liveness, self._away_reason, at_ms, clock_ms)
        self._notify(self._alerts)
        if liveness is None:
            await asyncio.sleep(RETRY_S)

    async def _work(self) -> None:
        """Returns when something new has arrived, or when a round that waits for its turn is due."""
        pause_s = None if self._newest is None else max(0.0, self._round_due_s - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._arrived.wait()
        self._arrived.clear()

    def _judge(
        self, seen: ObservedRound | None, liveness: ObservedLiveness | None, at_ms: int, clock_ms: int
    ) -> OpenAlerts:
        """On the database thread. Repeating it after a failure in the middle gives the same rows."""
        with reading(self._database.engine) as connection:
            open_findings = queries.all_open(connection, self._cluster_id)
            if seen is not None:
                context = self._contexts.of_round(connection, seen, clock_ms)
                self._set_verdicts(FindingLane.ROUND, candidates(context, RULES), context, open_findings)
            if liveness is not None:
                self._judge_liveness(self._contexts.of_liveness(connection, liveness), open_findings)
            muted = queries.muted_until(connection, self._cluster_id, at_ms)
            windows = maintenance.windows_at(connection, self._cluster_id, at_ms)
        memory = OpenInMemory(open_findings, muted, windows, self._open.unstored_ms)
        current = self._current(open_findings)
        if clock_ms - self._failed_ms < PIPELINE_RETURNS_MS:
            # It could not give a sign of life either, and comes back a few seconds after us.
            stored = {(finding.slug, finding.object) for finding in open_findings}
            current = {key: c for key, c in current.items() if key[0] not in PIPELINE_SLUGS or key in stored}
        passed = self._open.passed(current)
        changes = self._compare(current, memory, at_ms, clock_ms)
        # A database that is read-only or locked still reads: whether it takes writes is seen by writing.
        due = clock_ms - self._wrote_ms >= PROBE_INTERVAL_MS or AWAY in self._changes.waiting
        due |= at_ms - self._pruned_ms >= PRUNE_INTERVAL_MS
        if due or passed or changes.opened or changes.kept or changes.closed:
            self._wrote_ms = clock_ms
            with writing(self._database.engine) as connection:
                self._write(connection, changes, muted, at_ms)
                finding_rows.open_findings(connection, [self._passed_row(f, at_ms) for f in passed])
        self._open = memory.with_changes(changes, at_ms).stored()
        self._changes = changes.holds
        for candidate in changes.opened:
            if candidate.cause is None:
                _log.info("Finding %s opened: %s. %s", candidate.slug, candidate.sentence, candidate.why)
        for finding in changes.closed:
            if finding.cause is None:
                _log.info("Finding %s closed: %s", finding.slug, finding.sentence)
        alerts = open_alerts(open_findings, changes, muted, windows, at_ms)
        self.open_counts = open_counts(alerts)
        return alerts

    def _judge_in_memory(self, liveness: ObservedLiveness | None, reason: str, at_ms: int, clock_ms: int) -> OpenAlerts:
        """While the database is away: who is alive is judged on, against what was open last; nothing is stored."""
        before = self._open
        self._failed_ms = self._monotonic_ms()
        if liveness is not None:
            self._judge_liveness(self._contexts.of_liveness(None, liveness), before.findings)
        away = database_away(reason, self._database.lost)
        # Since the attempt began: one that waits for a lock ends after ten seconds.
        self._changes = replace(self._changes, waiting={away.key: clock_ms, **self._changes.waiting})
        current = self._current(before.findings) | adjusted({away.key: away}, self._rule_settings())
        changes = self._compare(current, before, at_ms, self._monotonic_ms())
        self._open = before.with_changes(changes, at_ms)
        self._changes = changes.holds
        alerts = open_alerts(before.findings, changes, before.muted_until_ms, before.windows, at_ms)
        self.open_counts = open_counts(alerts)
        return alerts

    def _compare(
        self, current: Mapping[FindingKey, Candidate], memory: OpenInMemory, at_ms: int, clock_ms: int
    ) -> Changes:
        withheld = withheld_keys(current.values(), memory.muted_until_ms, memory.windows, at_ms)
        # Findings that no table has yet held before, or while the database was away.
        waiting = {**self._changes.waiting, **dict.fromkeys(memory.unstored_ms, clock_ms - HOLD_MS_MAX)}
        outlasting, unlisted = self._changes.outlasting, self._changes.unlisted
        return compare(current, memory.findings, waiting, at_ms, clock_ms, outlasting, withheld, unlisted)

    def _set_verdicts(
        self,
        lane: FindingLane,
        now: Mapping[FindingKey, Candidate],
        context: FindingContext,
        open_findings: Sequence[Finding],
    ) -> None:
        visible = {row.topic for row in context.partitions}
        kept = unseen(open_findings, lane, visible, self._missing_rights, context.at_ms)
        self._verdicts[lane] = _Verdicts(context.at_ms, kept | dict(now))

    def _judge_liveness(self, context: FindingContext, open_findings: Sequence[Finding]) -> None:
        """While no broker answers, what was last seen of them stays as it was then."""
        self._missing_rights = context.missing_rights
        now = candidates(context, LIVENESS_RULES)
        last = self._verdicts.get(FindingLane.LIVENESS)
        if context.away is not None:
            before = _retained(open_findings) if last is None else last.candidates
            kept = {key: candidate for key, candidate in before.items() if key[0] not in OWN_SLUGS}
            now = {key: replace(c, seen_ms=c.seen_ms or context.away.since_ms) for key, c in kept.items()} | dict(now)
            self._verdicts[FindingLane.LIVENESS] = _Verdicts(context.at_ms, now)
        elif not context.topics and not context.missing_rights and (last is None or SILENT_OBSERVER in last.candidates):
            # The first settings are not there yet: nothing can be said of what was open before.
            if last is not None or SILENT_OBSERVER in now:
                silent = {key: candidate for key, candidate in now.items() if key == SILENT_OBSERVER}
                self._verdicts[FindingLane.LIVENESS] = _Verdicts(context.at_ms, _retained(open_findings) | silent)
        else:
            self._set_verdicts(FindingLane.LIVENESS, now, context, open_findings)

    def _current(self, open_findings: Sequence[Finding]) -> dict[FindingKey, Candidate]:
        """The newest candidates of each lane; of one that has nothing to say yet, what is open."""
        current = {
            (finding.slug, finding.object): retained(finding)
            for finding in open_findings
            if lane_of(finding.slug) not in self._verdicts
        }
        newest_ms = max((verdicts.at_ms for verdicts in self._verdicts.values()), default=0)
        for verdicts in self._verdicts.values():
            for key, candidate in verdicts.candidates.items():
                stale = verdicts.at_ms < newest_ms and candidate.seen_ms is None
                current[key] = replace(candidate, seen_ms=verdicts.at_ms) if stale else candidate
        return current

    def _write(self, connection: Connection, changes: Changes, muted: Mapping[FindingKey, int], at_ms: int) -> None:
        unstored_ms = self._open.unstored_ms
        finding_rows.open_findings(
            connection,
            [self._row(c, unstored_ms.get(c.key, at_ms), muted.get(c.key)) for c in changes.opened],
        )
        finding_rows.refresh_findings(
            connection,
            [
                {
                    "finding_id": finding.id,
                    "severity": candidate.severity,
                    "sentence": candidate.sentence,
                    "action": candidate.action,
                    "evidence": candidate.evidence,
                    "seen_ms": at_ms if candidate.seen_ms is None else candidate.seen_ms,
                    **_cause(candidate),
                }
                for finding, candidate in changes.kept
            ],
        )
        finding_rows.close_findings(connection, [finding.id for finding in changes.closed], at_ms)
        cluster_rows.touch(connection)
        if at_ms - self._pruned_ms >= PRUNE_INTERVAL_MS:
            finding_rows.prune_findings(connection, self._cluster_id, at_ms - KEEP_CLOSED_MS)
            self._pruned_ms = at_ms
        if changes.worth_a_look:
            cluster_rows.data_changed(connection, self._cluster_id, "observer")

    def _passed_row(self, finding: Finding, at_ms: int) -> dict[str, Any]:
        """A finding that was over before the database was back."""
        row = {name: getattr(finding, name) for name in Finding.__slots__ if name in t.finding.c and name != "id"}
        return row | {"cluster_id": self._cluster_id, "closed_ms": at_ms}

    def _row(self, candidate: Candidate, at_ms: int, muted_until_ms: int | None) -> dict[str, Any]:
        return {
            "cluster_id": self._cluster_id,
            "slug": candidate.slug,
            "object": candidate.object,
            "topic": candidate.topic,
            "partition": candidate.partition,
            "broker_id": candidate.broker_id,
            "severity": candidate.severity,
            "sentence": candidate.sentence,
            "action": candidate.action,
            "evidence": candidate.evidence,
            "opened_ms": at_ms,
            "seen_ms": at_ms,
            "muted_until_ms": muted_until_ms,
            **_cause(candidate),
        }


def _cause(candidate: Candidate) -> dict[str, str | None]:
    slug, object_ = candidate.cause or (None, None)
    return {"cause_slug": slug, "cause_object": object_}
