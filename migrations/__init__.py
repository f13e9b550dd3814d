"""Alembic migrations of the schema in `backend/store/tables`; run by `backend/store/migrate.py`, never by hand.

A revision's number is its place in the one line of history; a database with a number that is not here is newer.
"""
