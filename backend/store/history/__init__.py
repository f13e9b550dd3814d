"""Limits of what the database keeps: ``sample_retention``, ``segment_history``, ``event_months`` (of PostgreSQL)."""
