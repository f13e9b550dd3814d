"""Plans that run for hours: how far they are, and what people ask of them meanwhile."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
phase = "pre"

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("operation", sa.Column("progress", JSON_VALUE, nullable=True, comment="of a plan that takes time"))
    op.add_column(
        "operation", sa.Column("intent", sa.String(), nullable=True, comment="stop: asked for, not yet reached")
    )
    op.add_column(
        "operation",
        sa.Column(
            "throttle_bytes_per_s",
            sa.BigInteger(),
            nullable=True,
            comment="limit that replaced the one of the inputs",
        ),
    )


def downgrade() -> None:
    with op.batch_alter_table("operation") as table:
        table.drop_column("throttle_bytes_per_s")
        table.drop_column("intent")
        table.drop_column("progress")
