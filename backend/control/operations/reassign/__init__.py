"""Kinds of change that move replicas and leaders.

`reassignment`: kind `reassign` (KIP-455). `reassignment_inputs`: what it takes; `replica_placement`: from "drain broker
3" to replica lists; `reassignment_review`, `reassignment_checks`, `copy_estimate`: what speaks against it and what it
copies; `partition_moves`, `reassignment_progress`: how far each partition is; `replication_throttles`: limits for its
time (KIP-73); `reassignment_texts`: its sentences. `clear_throttle`, `preferred_election`: the kinds `clear_throttle`
and `elect`.
"""
