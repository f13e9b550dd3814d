"""Findings get a number, an action, and what people did about them. Nothing wrote the table of before."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
# pre, although it drops a table: no release wrote or read the one of before.
phase = "pre"

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _drop()
    op.create_table(
        "finding",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False, comment="the rule, and its runbook"),
        sa.Column("object", sa.String(), nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
        sa.Column("topic", sa.String(), nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("broker_id", sa.Integer(), nullable=True),
        sa.Column("severity", sa.String(), nullable=False, comment="critical | warning | notice"),
        sa.Column("sentence", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False, comment="what to do next, one sentence"),
        sa.Column("evidence", JSON_VALUE, nullable=True),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False, comment="last time that it was true"),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_ms", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.String(), nullable=True),
        sa.Column(
            "muted_until_ms",
            sa.BigInteger(),
            nullable=True,
            comment="also of the next finding of this slug and object",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finding")),
        sa.UniqueConstraint(
            "cluster_id", "slug", "object", "opened_ms", name=op.f("uq_finding_cluster_id_slug_object_opened_ms")
        ),
    )
    _index()


def downgrade() -> None:
    _drop()
    op.create_table(
        "finding",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False, comment="what it is about, e.g. orders-3 or broker 2"),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False, comment="critical | warning | notice"),
        sa.Column("sentence", sa.String(), nullable=False),
        sa.Column("evidence", JSON_VALUE, nullable=True),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("cluster_id", "slug", "object", "opened_ms", name=op.f("pk_finding")),
    )
    _index()


def _drop() -> None:
    op.drop_index(op.f("ix_finding_cluster_id_closed_ms"), table_name="finding")
    op.drop_table("finding")


def _index() -> None:
    op.create_index(op.f("ix_finding_cluster_id_closed_ms"), "finding", ["cluster_id", "closed_ms"], unique=False)
