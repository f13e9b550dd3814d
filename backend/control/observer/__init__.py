"""Samples the cluster into the database: what is where on every replica, and what it means.

Way of a sample: `sampling` asks the gateway and gives `cluster_facts` (frozen values) → `sampling_round` concludes
what Kafka does not say, with `follower_epochs`, `cluster_totals` and `tiering.phase_inference` (pure functions; they
say how sure they are) → `cluster_rows` → `sample_recorder` (buffers, database thread). `cluster_observer` is the loop
that drives them, `observer_state` what it says of itself; `restored_context` is what it goes on from after a restart.
`watches` look after what is not part of a round.
"""
