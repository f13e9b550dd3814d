"""The history of events on PostgreSQL is partitioned by month, so that what is too old goes at once; SQLite as before.

All events are written again in this one transaction: about a minute for five million, and room for them twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
# post: a partitioned table has no unique key without its month, and programs of the release before insert
# "ON CONFLICT" of the key without it.
phase = "post"

TABLE = "segment_event"
KEY = ("cluster_id", "metadata_partition", "metadata_offset")
MONTH = "event_timestamp_ms"
BY_SEGMENT = "ix_segment_event_cluster_id_topic_id_partition_segment_id"
ILLEGAL = "ix_segment_event_illegal"
FIRST_YEAR, LAST_YEAR = 2020, 2049
EPOCHS = "list of [epoch, start_offset]"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    _set_aside()
    _create(postgresql_partition_by=f"RANGE ({MONTH})")
    low, high = _begin_ms(12 * FIRST_YEAR), _begin_ms(12 * (LAST_YEAR + 1))
    op.execute(f"CREATE TABLE {TABLE}_before PARTITION OF {TABLE} FOR VALUES FROM (MINVALUE) TO ({low})")
    op.execute(f"CREATE TABLE {TABLE}_after PARTITION OF {TABLE} FOR VALUES FROM ({high}) TO (MAXVALUE)")
    month = f"date_trunc('month', to_timestamp({MONTH} / 1000.0) AT TIME ZONE 'UTC')"
    text = f"SELECT DISTINCT extract(year FROM m), extract(month FROM m) FROM (SELECT {month} AS m FROM {TABLE}_whole "
    text += f"WHERE {MONTH} >= {low} AND {MONTH} < {high}) AS months"
    for year, number in op.get_bind().execute(sa.text(text)).all():
        at = 12 * int(year) + int(number) - 1
        name = f"{TABLE}_y{int(year):04d}m{int(number):02d}"
        limits = f"FROM ({_begin_ms(at)}) TO ({_begin_ms(at + 1)})"
        op.execute(f"CREATE TABLE {name} PARTITION OF {TABLE} FOR VALUES {limits}")
    _take_over((*KEY, MONTH))


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    _set_aside()
    _create()
    _take_over(KEY)


def _begin_ms(month: int) -> int:
    """The first millisecond of a month that is counted from the year 0, in UTC."""
    return int(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


def _set_aside() -> None:
    op.drop_index(ILLEGAL, table_name=TABLE)
    op.drop_index(op.f(BY_SEGMENT), table_name=TABLE)
    op.drop_constraint(op.f("pk_segment_event"), TABLE, type_="primary")
    op.rename_table(TABLE, f"{TABLE}_whole")


def _take_over(key: tuple[str, ...]) -> None:
    # Keys and indexes after the rows: they are built faster than they grow.
    op.execute(f"INSERT INTO {TABLE} SELECT * FROM {TABLE}_whole")
    op.drop_table(f"{TABLE}_whole")
    op.create_primary_key(op.f("pk_segment_event"), TABLE, list(key))
    op.create_index(op.f(BY_SEGMENT), TABLE, ["cluster_id", "topic_id", "partition", "segment_id"], unique=False)
    op.create_index(ILLEGAL, TABLE, list(KEY), unique=False, postgresql_where=sa.text("NOT legal"))


def _create(**options: Any) -> None:
    op.create_table(
        TABLE,
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("metadata_partition", sa.Integer(), nullable=False),
        sa.Column("metadata_offset", sa.BigInteger(), nullable=False),
        sa.Column(
            "kind",
            sa.SmallInteger(),
            nullable=False,
            comment="the record's apiKey: 0 segment, 1 update, 2 partition delete",
        ),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("segment_id", sa.String(), nullable=True, comment="NULL for a partition delete"),
        sa.Column("state", sa.SmallInteger(), nullable=False, comment="segment state, or partition delete state"),
        sa.Column("broker_id", sa.Integer(), nullable=False),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("record_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=True),
        sa.Column("end_offset", sa.BigInteger(), nullable=True, comment="inclusive"),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("segment_size_bytes", sa.Integer(), nullable=True),
        sa.Column("leader_epochs", postgresql.JSONB(none_as_null=True), nullable=True, comment=EPOCHS),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=True),
        sa.Column("legal", sa.Boolean(), nullable=False, comment="did the ledger follow it"),
        sa.Column("illegal_reason", sa.String(), nullable=True),
        **options,
    )
