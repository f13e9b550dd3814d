"""All open findings, page by page: exit codes and counts are of all of them, whatever a table shows."""

from __future__ import annotations

from typing import Final

from backend.cli.shared.api_session import PAGE, ApiSession, Json

# The backend keeps at most 1,000 of each of 42 rules; a list that grows while it is read has an end all the same.
FINDINGS_MAX: Final = 50_000


def open_findings(opened: ApiSession, topic: str | None = None) -> list[Json]:
    """Of the cluster or of a topic, the newest first, with those that are muted. Raises ApiError."""
    findings: list[Json] = []
    before: int | None = None
    while len(findings) < FINDINGS_MAX:
        page = opened.get("/v1/findings", state="open", topic=topic, limit=PAGE, before_id=before)
        findings += page["items"]
        before = page["next_before_id"]
        if before is None:
            break
    return findings


def not_muted(findings: list[Json], now_ms: int) -> list[Json]:
    """The findings that nobody has muted."""
    return [finding for finding in findings if (finding["muted_until_ms"] or 0) <= now_ms]
