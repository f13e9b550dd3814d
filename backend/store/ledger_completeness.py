"""How far the ledger of remote segments can be trusted: copies that end after that moment are not in it yet. Pure."""

from __future__ import annotations

from backend.store.queries.health import ProcessHealth


def ledger_ms(pipeline: ProcessHealth, at_ms: int, before_ms: int | None) -> int | None:
    """Up to when the ledger is complete; `before_ms`: what is taken where nobody can tell.

    A pipeline that cannot ask its brokers, or was frozen, tells no lag: it is complete up to when nothing waited last.
    One that has just started may tell how many records wait, and not for how long: no such moment is known of it yet.
    """
    detail = pipeline.detail or {}
    if "lag_records" not in detail:
        return at_ms if pipeline.alive else min(at_ms, pipeline.updated_ms)
    lag_records, lag_ms = detail["lag_records"], detail.get("lag_ms")
    if lag_records is None or (lag_records and lag_ms is None):
        return detail.get("caught_up_ms") or before_ms
    # While it keeps pace it is complete now, and not only since its last sign of life.
    known_ms = at_ms if pipeline.alive and not lag_records else pipeline.updated_ms - (lag_ms or 0)
    return min(at_ms, known_ms)
