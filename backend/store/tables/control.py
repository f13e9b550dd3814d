"""What the control plane decides and does."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, UniqueConstraint

from backend.store.tables.shared import cluster_key, json, metadata, row_id

operation = Table(
    "operation",
    metadata,
    row_id(),
    Column("cluster_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column(
        "state",
        String,
        nullable=False,
        comment="draft, checked, requested, accepted, running, paused, or how it ended",
    ),
    Column("author", String, nullable=False),
    Column("role", String, nullable=False),
    Column("reason", String),
    Column("inputs", json(), nullable=False),
    Column("snapshot", json(), comment="the state before, for the revert"),
    Column("diff", json()),
    Column("checks", json()),
    Column("cli", json()),
    Column("estimate", json()),
    Column("result", json()),
    Column("idempotency_key", String),
    Column("reverts_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("requested_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("progress", json(), comment="of a plan that takes time"),
    Column("intent", String, comment="stop: asked for, not yet reached"),
    Column("throttle_bytes_per_s", BigInteger, comment="limit that replaced the one of the inputs"),
    UniqueConstraint("cluster_id", "idempotency_key"),
    Index(None, "cluster_id", "state"),
    Index(None, "cluster_id", "created_ms"),
)

audit = Table(
    "audit",
    metadata,
    row_id(),
    Column("cluster_id", String, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", String, nullable=False),
    Column("role", String, nullable=False),
    Column("action", String, nullable=False),
    Column("object", String, nullable=False),
    Column("diff", json()),
    Column("reason", String),
    Column("operation_id", BigInteger().with_variant(Integer(), "sqlite"), ForeignKey("operation.id")),
    Column("cli", json()),
    Column("result", String, nullable=False, comment="accepted | verified | refused | failed"),
    Column("detail", String),
    Index(None, "cluster_id", "at_ms"),
)

api_token = Table(
    "api_token",
    metadata,
    cluster_key(),
    Column("name", String, primary_key=True),
    Column("role", String, nullable=False, comment="viewer | operator | app"),
    Column("hash", String, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, comment="NULL: never"),
    UniqueConstraint("cluster_id", "hash"),
)

finding = Table(
    "finding",
    metadata,
    row_id(),
    Column("cluster_id", String, nullable=False),
    Column("slug", String, nullable=False, comment="the rule, and its runbook"),
    Column("object", String, nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
    Column("topic", String),
    Column("partition", Integer),
    Column("broker_id", Integer),
    Column("severity", String, nullable=False, comment="critical | warning | notice"),
    Column("sentence", String, nullable=False),
    Column("action", String, nullable=False, comment="what to do next, one sentence"),
    Column("evidence", json()),
    Column("opened_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False, comment="last time that it was true"),
    Column("closed_ms", BigInteger),
    Column("acknowledged_ms", BigInteger),
    Column("acknowledged_by", String),
    Column("muted_until_ms", BigInteger, comment="also of the next finding of this slug and object"),
    UniqueConstraint("cluster_id", "slug", "object", "opened_ms"),
    Index(None, "cluster_id", "closed_ms"),
)
