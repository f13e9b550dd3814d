"""Bytes produced as a counter of the samples; bytes copied by time as an index of the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
phase = "pre"

INDEX = "ix_segment_cluster_id_copy_finished_ms_segment_size_bytes"
COMMENT = "counter of tiered partitions, each by its own bytes per record"


def upgrade() -> None:
    op.add_column("cluster_sample", sa.Column("produced_bytes", sa.BigInteger(), nullable=True, comment=COMMENT))
    op.create_index(op.f(INDEX), "segment", ["cluster_id", "copy_finished_ms", "segment_size_bytes"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f(INDEX), table_name="segment")
    op.drop_column("cluster_sample", "produced_bytes")
