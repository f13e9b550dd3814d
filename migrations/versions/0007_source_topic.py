"""The topic that the ledger was made of, and the place where executors of a Spark cluster leave what they read."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
phase = "pre"


def upgrade() -> None:
    op.create_table(
        "source_topic",
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("topic_id", sa.String(), nullable=False, comment="of the topic that the ledger was made of"),
        sa.PrimaryKeyConstraint("cluster_id", "job", "topic", name=op.f("pk_source_topic")),
    )
    op.create_table(
        "staged_record",
        sa.Column("attempt", sa.String(), nullable=False, comment="one task of Spark, one try"),
        sa.Column("metadata_partition", sa.Integer(), nullable=False),
        sa.Column("metadata_offset", sa.BigInteger(), nullable=False),
        sa.Column("cluster_id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("record_timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=True),
        sa.Column("topic", sa.String(), nullable=True),
        sa.Column("topic_id", sa.String(), nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("segment_id", sa.String(), nullable=True),
        sa.Column("state", sa.SmallInteger(), nullable=True),
        sa.Column("broker_id", sa.Integer(), nullable=True),
        sa.Column("event_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=True),
        sa.Column("end_offset", sa.BigInteger(), nullable=True),
        sa.Column("max_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("segment_size_bytes", sa.Integer(), nullable=True),
        sa.Column("leader_epochs", sa.String(), nullable=True),
        sa.Column("custom_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("txn_index_empty", sa.Boolean(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True, comment="why it cannot be read; NULL: an event"),
        sa.Column("raw_key", sa.LargeBinary(), nullable=True),
        sa.Column("raw_value", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("attempt", "metadata_partition", "metadata_offset", name=op.f("pk_staged_record")),
        prefixes=["UNLOGGED"] if op.get_bind().dialect.name == "postgresql" else [],
    )


def downgrade() -> None:
    op.drop_table("staged_record")
    op.drop_table("source_topic")
