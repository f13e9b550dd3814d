"""Asks the cluster: one round of questions gives frozen facts, no conclusions.

`cluster_facts`: the values. `cluster_sampler`: one round. `broker_sampler`: the part of one broker. `settings_watch`
and `settings_sample`: configs, asked less often. `epoch_chain_watch`: leader-epoch chains. `sampling_interval`: how
often.
"""
