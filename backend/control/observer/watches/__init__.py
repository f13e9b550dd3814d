"""Loops beside the rounds of samples.

`finding_watch`: judges each round by the rules of `findings`. `quorum_watch`: the metadata quorum (KIP-595).
`reader_watch`: groups that read from the remote tier; `broker_numbers`: metrics of brokers, scraped for it.
`engine_event_reader`: reads `__ebbline_events`, in which the embedded engine reports its phases exactly.
"""
