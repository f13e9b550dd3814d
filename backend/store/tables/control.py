"""Tables of the control plane's decisions and actions."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, UniqueConstraint

from backend.store.storable import KeyText, Text
from backend.store.tables.shared import cluster_key, json, metadata, row_id

operation = Table(
    "operation",
    metadata,
    row_id(),
    Column("cluster_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column(
        "state",
        Text,
        nullable=False,
        comment="draft, checked, requested, accepted, running, paused, or how it ended",
    ),
    Column("author", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("reason", Text),
    Column("inputs", json(), nullable=False),
    Column("snapshot", json(), comment="the state before, for the revert"),
    Column("diff", json()),
    Column("checks", json()),
    Column("cli", json()),
    Column("estimate", json()),
    Column("result", json()),
    Column("idempotency_key", KeyText),
    Column("reverts_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("requested_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("progress", json(), comment="of a plan that takes time"),
    Column("intent", Text, comment="stop: asked for, not yet reached"),
    Column("throttle_bytes_per_s", BigInteger, comment="limit that replaced the one of the inputs"),
    UniqueConstraint("cluster_id", "idempotency_key"),
    Index(None, "cluster_id", "state"),
    Index(None, "cluster_id", "created_ms"),
)

audit = Table(
    "audit",
    metadata,
    row_id(),
    Column("cluster_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("diff", json()),
    Column("reason", Text),
    Column("operation_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("cli", json()),
    Column("result", Text, nullable=False, comment="accepted | verified | refused | failed"),
    Column("detail", Text),
    Index(None, "cluster_id", "at_ms"),
)

api_token = Table(
    "api_token",
    metadata,
    cluster_key(),
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False, comment="viewer | operator | app"),
    Column("hash", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, comment="NULL: never"),
    UniqueConstraint("cluster_id", "hash"),
)

finding = Table(
    "finding",
    metadata,
    row_id(),
    Column("cluster_id", Text, nullable=False),
    Column("slug", Text, nullable=False, comment="the rule, and its runbook"),
    Column("object", KeyText, nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
    Column("topic", Text),
    Column("partition", Integer),
    Column("broker_id", Integer),
    Column("severity", Text, nullable=False, comment="critical | warning | notice"),
    Column("sentence", Text, nullable=False),
    Column("action", Text, nullable=False, comment="what to do next, one sentence"),
    Column("evidence", json()),
    Column("opened_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False, comment="last time that it was true"),
    Column("closed_ms", BigInteger),
    Column("acknowledged_ms", BigInteger),
    Column("acknowledged_by", Text),
    Column("muted_until_ms", BigInteger, comment="also of the next finding of this slug and object"),
    Column("cause_slug", Text, comment="of the finding that explains it"),
    Column("cause_object", KeyText, comment="of the finding that explains it"),
    UniqueConstraint("cluster_id", "slug", "object", "opened_ms"),
    Index(None, "cluster_id", "closed_ms"),
)

maintenance_window = Table(
    "maintenance_window",
    metadata,
    row_id(),
    Column("cluster_id", Text, nullable=False),
    Column("begins_ms", BigInteger, nullable=False),
    Column("ends_ms", BigInteger, nullable=False),
    Column("slug", Text, comment="NULL: every rule"),
    Column("topic", Text, comment="a pattern as a shell has it; NULL: every topic, and what has none"),
    Column("broker_id", Integer, comment="NULL: every broker, and what has none"),
    Column("reason", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Index(None, "cluster_id", "ends_ms"),
)
