"""Copies of the database: ``backup`` on demand, ``automatic_backups`` of SQLite, ``restoring`` after a loss."""
