"""Partitions as rows of a sortable table. Sizes stay numbers, so that a click on a column sorts by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components.partition.partition_filter import name_of, remote_bytes
from app.components.partition.pending_limits import pending_bytes, pending_offsets, pending_unknown_cause
from app.components.shared.table_style import number_format, size, styled, whole
from backend.store.queries.partitions import PartitionRow

_OFFSETS = {
    "log start": "First offset that can be read, from either tier (ListOffsets -2)",
    "local start": "First offset on the leader's disk (ListOffsets -4)",
    "latest tiered": "Last offset in the remote tier, inclusive (ListOffsets -5); -1: none",
    "log end": "The offset that the next record gets",
}


def frame(rows: Sequence[PartitionRow]) -> pd.DataFrame:
    """One row a partition; what is not known is empty, and ``note`` says why."""
    pending = [pending_bytes(row) for row in rows]
    return pd.DataFrame(
        {
            "partition": [name_of(row) for row in rows],
            "leader": pd.array([None if row.leader < 0 else row.leader for row in rows], dtype="Int64"),
            "in sync": [f"{len(row.isr)} of {len(row.replicas)}" for row in rows],
            "pending": pd.array(pending, dtype="Int64"),
            "pending records": pd.array([pending_offsets(row) for row in rows], dtype="Int64"),
            "remote": pd.array([remote_bytes(row) for row in rows], dtype="Int64"),
            "local": pd.array([row.local_log_bytes for row in rows], dtype="Int64"),
            "log start": pd.array([row.log_start_offset for row in rows], dtype="Int64"),
            "local start": pd.array([row.local_log_start_offset for row in rows], dtype="Int64"),
            "latest tiered": pd.array([row.latest_tiered_offset for row in rows], dtype="Int64"),
            "log end": pd.array([row.log_end_offset for row in rows], dtype="Int64"),
            "note": [note(row) for row in rows],
        }
    )


def shown(rows: Sequence[PartitionRow]) -> Any:
    """:func:`frame` with numbers written as on the rest of the page."""
    sizes = dict.fromkeys(("pending", "remote", "local"), size)
    return styled(frame(rows), {**sizes, **dict.fromkeys(("leader", "pending records", *_OFFSETS), whole)})


def note(row: PartitionRow) -> str:
    """Why something is not known; empty when all is."""
    if row.error:
        return row.error
    return pending_unknown_cause(row) if pending_bytes(row) is None else ""


def columns(count: int) -> dict[str, Any]:
    """The column configuration for the table of :func:`shown`, for that many rows."""
    offset, size_format = number_format(count, "localized"), number_format(count, "bytes")
    sizes = {name: st.column_config.NumberColumn(name, format=size_format) for name in ("pending", "remote", "local")}
    offsets = {name: st.column_config.NumberColumn(name, format=offset, help=hint) for name, hint in _OFFSETS.items()}
    return {
        "partition": st.column_config.TextColumn("partition", pinned=True),
        "leader": st.column_config.NumberColumn("leader", width=70),
        "in sync": st.column_config.TextColumn("in sync", width=80),
        "pending records": st.column_config.NumberColumn("pending records", format=offset),
        "note": st.column_config.TextColumn("note", help="Why something is not known"),
        **sizes,
        **offsets,
    }
