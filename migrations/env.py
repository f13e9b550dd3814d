"""Alembic's entry: runs the revisions on the connection that `backend/store/migrate.py` hands over.

There is no alembic.ini and no URL here: the caller has checked the database and opened the
transaction, so either all revisions apply or none.
"""

from alembic import context
from sqlalchemy import Connection

from backend.store.migrate import VERSION_TABLE
from backend.store.tables import metadata


def run(connection: Connection) -> None:
    """Apply the revisions asked for inside the caller's transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=True,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        compare_server_default=True,
    )
    context.run_migrations()


run(context.config.attributes["connection"])
