"""The product's benchmark of truth: incidents that are played on clusters, with the findings that each must bring.

`catalogue` declares them, `player` plays one on a rig and records, `judge` compares. `python -m tests.incidents` plays
them all and writes docs/incidents.md; `test_quick.py` plays a few in `make test`.
"""
