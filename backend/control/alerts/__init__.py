"""Findings for other programs: a rules file for Prometheus, and a webhook for findings that open and close."""
