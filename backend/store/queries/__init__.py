"""Reads of the database, by the page or job that asks. Each is one or two statements on an index."""
