"""Loops beside the rounds of samples.

`finding_watch`: judges each round by the rules of `findings`, on what `finding_contexts` and `sampled_settings` gather.
`liveness_watch`: who is alive; `observed_brokers`: the rows of brokers that follow from it.
`quorum_watch`: the metadata quorum (KIP-595).
`reader_watch`: groups that read from the remote tier; `broker_numbers`: metrics of brokers, scraped for it.
`transaction_watch`: whose transactions hold partitions.
`engine_event_reader`: reads `__ebbline_events`, in which the embedded engine reports its phases exactly.
"""
