"""When each segment was remote, as intervals that an index finds by time; filled from the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
# pre: only adds, so programs of the release before go on reading and writing. See docs/database.md.
phase = "pre"

TABLE = "segment_interval"
INDEX = "ix_segment_interval_cluster_id_topic_id_partition_node_from_ms_to_ms"
MOMENT_MAX = (1 << 43) - 1
ROWS_AT_ONCE = 10_000


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("segment_id", sa.String(), nullable=False),
        sa.Column("from_ms", sa.BigInteger(), nullable=False, comment="the copy was finished: readable from then on"),
        sa.Column(
            "to_ms",
            sa.BigInteger(),
            nullable=True,
            comment="the deletion began: not readable any more; NULL: still remote",
        ),
        sa.Column("node", sa.BigInteger(), nullable=False, comment="backend.tiering.intervals; 0: still remote"),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False, comment="inclusive"),
        sa.Column("segment_size_bytes", sa.Integer(), nullable=False, comment="the .log only"),
        sa.CheckConstraint("to_ms >= from_ms", name=op.f("ck_segment_interval_times")),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition", "segment_id", name=op.f("pk_segment_interval")),
    )
    _fill(op.get_bind())
    # After the rows: an index is built faster than it grows.
    op.create_index(
        op.f(INDEX), TABLE, ["cluster_id", "topic_id", "partition", "node", "from_ms", "to_ms"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f(INDEX), table_name=TABLE)
    op.drop_table(TABLE)


def _fill(connection: sa.Connection) -> None:
    """Intervals of the segments that the ledger has, as the pipeline of this release would have written them."""
    copied = (
        "cluster_id", "topic_id", "partition", "segment_id", "start_offset", "end_offset", "segment_size_bytes"
    )  # fmt: skip
    target = sa.table(TABLE, *(sa.column(name) for name in (*copied, "from_ms", "to_ms", "node")))
    names = [*copied, "copy_finished_ms", "delete_started_ms"]
    segment = sa.table("segment", *(sa.column(name) for name in names))
    key = [segment.c[name] for name in copied[:4]]
    query = sa.select(*segment.c).where(segment.c.copy_finished_ms.is_not(None)).order_by(*key).limit(ROWS_AT_ONCE)
    last: tuple[object, ...] | None = None
    while True:
        after = query if last is None else query.where(sa.tuple_(*key) > sa.tuple_(*last))
        segments = connection.execute(after).all()
        if not segments:
            return
        connection.execute(sa.insert(target), [_interval(row._mapping, copied) for row in segments])
        last = tuple(segments[-1][:4])


def _interval(row: sa.RowMapping, copied: tuple[str, ...]) -> dict[str, object]:
    from_ms = min(max(row["copy_finished_ms"], 1), MOMENT_MAX)
    to_ms, node = None, 0
    if row["delete_started_ms"] is not None:
        to_ms = max(from_ms, min(row["delete_started_ms"], MOMENT_MAX))
        node = _fork_node(from_ms, to_ms)
    return {**{name: row[name] for name in copied}, "from_ms": from_ms, "to_ms": to_ms, "node": node}


def _fork_node(from_ms: int, to_ms: int) -> int:
    """As `backend.tiering.intervals.fork_node` on the day of this revision."""
    last = to_ms - 1
    if last < from_ms:
        return from_ms
    level = ((from_ms - 1) ^ last).bit_length() - 1
    return last >> level << level
