"""The cause of a finding, maintenance windows, within which nobody is notified, and what copying waits for.

Copies that failed are counted apart from what was deleted, and found by an index that holds nothing else; both are
made of the ledger, which is read once: 5 s for five million segments. Partitions get their last stable offset.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
# pre: only adds; a program of the release before shows an explained finding as any other, and counts failed copies that
# end while it goes on as deleted ones only.
phase = "pre"

PARTITIONS = ("partition_current", "partition_sample")
FAILED_COPY = sa.text("copy_finished_ms IS NULL AND delete_started_ms IS NOT NULL")


def upgrade() -> None:
    op.add_column("finding", sa.Column("cause_slug", sa.String(), comment="of the finding that explains it"))
    op.add_column("finding", sa.Column("cause_object", sa.String(), comment="of the finding that explains it"))
    op.create_table(
        "maintenance_window",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("begins_ms", sa.BigInteger(), nullable=False),
        sa.Column("ends_ms", sa.BigInteger(), nullable=False),
        sa.Column("slug", sa.String(), comment="NULL: every rule"),
        sa.Column("topic", sa.String(), comment="a pattern as a shell has it; NULL: every topic, and what has none"),
        sa.Column("broker_id", sa.Integer(), comment="NULL: every broker, and what has none"),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_maintenance_window")),
    )
    index = op.f("ix_maintenance_window_cluster_id_ends_ms")
    op.create_index(index, "maintenance_window", ["cluster_id", "ends_ms"], unique=False)
    for table in PARTITIONS:
        comment = "ListOffsets -1 by a reader of committed records"
        op.add_column(table, sa.Column("last_stable_offset", sa.BigInteger(), comment=comment))
    _add_failed_copies()


def _add_failed_copies() -> None:
    op.create_index(
        "ix_segment_failed_copy",
        "segment",
        ["cluster_id", "delete_started_ms"],
        unique=False,
        sqlite_where=FAILED_COPY,
        postgresql_where=FAILED_COPY,
    )
    segments = "of delete_finished_segments: copies that never finished, so nothing of them was reclaimed"
    for name, comment in (("failed_copy_segments", segments), ("failed_copy_bytes", "of these segments")):
        column = sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment=comment)
        op.add_column("remote_partition", column)
    # As `spark.ledger.PartitionTotals` counts them; 3 is DELETE_SEGMENT_FINISHED.
    failed = (
        "FROM segment AS s WHERE s.cluster_id = remote_partition.cluster_id"
        " AND s.topic_id = remote_partition.topic_id AND s.partition = remote_partition.partition"
        " AND s.state = 3 AND s.copy_finished_ms IS NULL"
    )
    op.execute(
        "UPDATE remote_partition SET"
        f" failed_copy_segments = (SELECT count(*) {failed}),"
        f" failed_copy_bytes = (SELECT coalesce(sum(s.segment_size_bytes), 0) {failed})"
        " WHERE delete_finished_segments > 0"
    )


def downgrade() -> None:
    op.drop_column("remote_partition", "failed_copy_bytes")
    op.drop_column("remote_partition", "failed_copy_segments")
    op.drop_index("ix_segment_failed_copy", table_name="segment")
    for table in PARTITIONS:
        op.drop_column(table, "last_stable_offset")
    op.drop_table("maintenance_window")
    op.drop_column("finding", "cause_object")
    op.drop_column("finding", "cause_slug")
