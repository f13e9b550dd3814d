"""Until when a token of the API is taken."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
# pre: only adds; a program of the release before takes a token that has expired.
phase = "pre"


def upgrade() -> None:
    op.add_column("api_token", sa.Column("expires_ms", sa.BigInteger(), comment="NULL: never"))


def downgrade() -> None:
    op.drop_column("api_token", "expires_ms")
