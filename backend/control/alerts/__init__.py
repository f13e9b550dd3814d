"""Findings for other programs: receivers and routes of a file, a rules file for Prometheus, a heartbeat."""
