"""Findings for other programs: a rules file for Prometheus, and a webhook that is told what opens and closes."""
