"""Demonstrations on the embedded cluster.

`bootstrap`: the bootstrap race of KIP-1023. `faults`: faults that are injected and cleared. `lab_topic`: a topic of
theirs. `demo`: the topics, traffic and readers of `ebbline up`.
"""
