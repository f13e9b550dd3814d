"""Demonstrations on the embedded cluster: the demo workload."""
