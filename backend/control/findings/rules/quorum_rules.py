"""Rules about the metadata quorum: voters that do not follow, do not count, and a quorum without a leader."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from backend.control.findings.finding_context import (
    CRITICAL,
    WARNING,
    Candidate,
    FindingContext,
    ids,
)
from backend.control.findings.holds import AFTER_OUTAGE, default_for_ms
from backend.control.formatting import in_time
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState

# A follower fetches at least every half second, and calls for an election when it cannot for 2 s
# (`controller.quorum.fetch.timeout.ms`). A new leader knows nothing of the others until they fetch.
VOTER_SILENT_MS: Final = 3_000
VOTER_AWAY_FOR_MS: Final = default_for_ms("voter-away", "one voter")
QUORUM_FRESH_MS: Final = 30_000
QUORUM_SILENT_FOR_MS: Final = default_for_ms("voter-away", "no active controller answers")
QUORUM_LOST_FOR_MS: Final = default_for_ms("voter-away", "majority lost with its brokers")
LEADER_HUNG_FOR_MS: Final = default_for_ms("voter-away", "its leader's broker hangs")
STARTING_FOR_MS: Final = default_for_ms("voter-away", AFTER_OUTAGE)


def silent_quorum(context: FindingContext) -> Iterable[Candidate]:
    """Brokers answer, and no active controller does: without a majority of its voters the quorum has no leader."""
    voters = sorted(replica.node_id for replica in context.quorum_replicas if replica.role == "voter")
    majority = len(voters) // 2 + 1
    silent_brokers = {broker.broker_id: broker for broker in context.brokers if not broker.reachable}
    away = [voter for voter in voters if voter in silent_brokers or voter in context.quorum_refused]
    lost = bool(voters) and len(voters) - len(away) < majority
    since_ms = context.quorum_silent_since_ms
    if lost and since_ms is None:
        since_ms = max(silent_brokers[voter].seen_ms for voter in away if voter in silent_brokers)
    if since_ms is None or context.away is not None:
        return
    leader_away = context.quorum_leader_id in silent_brokers
    running = len(voters) - len(away)
    counts = f"a majority, {majority} of {len(voters)} voters, must run"
    if away:
        counts = (
            f"{running} of {len(voters)} voters {'runs' if running == 1 else 'run'}, and a majority, {majority}, must"
        )
    missing = f" Away: {ids(away)}." if away else ""
    yield Candidate(
        slug="voter-away",
        object="quorum",
        severity=CRITICAL,
        sentence="The metadata quorum does not answer",
        why=f"No active controller answers for {in_time(context.at_ms - since_ms)}; {counts}.{missing} Until then no"
        " leader can be elected and nothing can be changed; partitions that have a leader go on.",
        action=f"Start controller{'s' if len(away) > 1 else ''} {ids(away)} again, each with its own disk."
        if lost
        else f"See which of the controllers {ids(voters)} do not run, and start them again, each with its own disk.",
        facts={"voters": voters, "majority": majority, "since_ms": since_ms},
        for_ms=_silent_for_ms(context, lost, silent_brokers.keys() & away, leader_away=leader_away),
    )


def _silent_for_ms(context: FindingContext, lost: bool, brokers_away: Collection[int], *, leader_away: bool) -> int:
    if context.just_back:
        return STARTING_FOR_MS
    if lost:
        return QUORUM_LOST_FOR_MS if brokers_away else 0
    return LEADER_HUNG_FOR_MS if leader_away else QUORUM_SILENT_FOR_MS


def voters_catching_up(context: FindingContext) -> Iterable[Candidate]:
    """A voter of the metadata quorum that lost its copy and does not count yet: the others are all there is."""
    voters = [replica for replica in context.quorum_replicas if replica.role == "voter"]
    counted = sum(replica.counted for replica in voters)
    majority = len(voters) // 2 + 1
    for voter in voters:
        if voter.counted:
            continue
        name = f"broker {voter.node_id}"
        last = "" if counted > majority else " If one more is lost, there is no majority, and no metadata can change."
        yield Candidate(
            slug="voter-catching-up",
            object=name,
            severity=WARNING if counted > majority else CRITICAL,
            sentence=f"Voter {voter.node_id} of the metadata quorum does not count yet",
            why=f"It has lost its copy of the metadata, or got an older one. {counted} of {len(voters)} voters count,"
            f" {majority} must agree.{last}",
            action=f"Keep the other voters running and touch none of their folders until ebbline quorum describe shows"
            f" voter {voter.node_id} as caught up; if it does not move, look at its log.",
            facts={"voters": len(voters), "counted": counted, "log_end_offset": voter.log_end_offset},
            broker_id=voter.node_id,
            for_ms=round(context.thresholds.catching_up_s * 1000),
        )


def voters_away(context: FindingContext) -> Iterable[Candidate]:
    """A voter of the metadata quorum that does not fetch: a controller that is dead, or cut off from the leader."""
    if context.quorum_ms is None or context.at_ms - context.quorum_ms > QUORUM_FRESH_MS:
        return
    voters = [replica for replica in context.quorum_replicas if replica.role == "voter"]
    # The quorum's leader gives its clock as its own last fetch: ours may differ from it.
    now_ms = max((voter.last_fetch_ms for voter in voters), default=context.quorum_ms)
    silent = [v for v in voters if now_ms - v.last_fetch_ms > VOTER_SILENT_MS]
    spare = len(voters) - len(silent) - (len(voters) // 2 + 1)
    last = " If one more is lost, no metadata can change: no leader can be elected." if spare <= 0 else ""
    for voter in silent:
        yield Candidate(
            slug="voter-away",
            object=f"voter {voter.node_id}",
            severity=WARNING,
            sentence=f"Voter {voter.node_id} of the metadata quorum is away",
            why=f"{_last_fetch(voter, now_ms)} {len(voters) - len(silent)} of {len(voters)} voters follow.{last}",
            action=f"Start controller {voter.node_id} again, with its own disk; stop no other one meanwhile.",
            facts={"voters": len(voters), "silent": len(silent), "last_fetch_ms": voter.last_fetch_ms},
            broker_id=voter.node_id,
            for_ms=VOTER_AWAY_FOR_MS,
        )


def _last_fetch(voter: QuorumReplicaState, now_ms: int) -> str:
    if voter.last_fetch_ms < 0:
        return "It has not fetched since the quorum's leader was elected."
    return f"It last fetched {in_time(now_ms - voter.last_fetch_ms)} ago."
