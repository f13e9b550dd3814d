"""Findings: rules over samples and ledger, and the findings that each round of them opens, keeps and closes.

Pure: `finding_context` is the input of the `rules`, `catalogue` lists them with their slugs and runbooks
(docs/runbooks), `evaluate` compares their result with what is open. `disk_rates`: how fast disks fill. `copy_failures`:
copies that fail, by ledger and events. `copy_times`: how long copies may take. `sealed_data`: what of a partition waits
to be copied. `still_offsets`: since when it waits there. `group_starts`: log starts of the time when groups were read.
`remote_reads`, `read_partitions`: groups and partitions that are read from the remote tier. `held_replicas`: throttles
that hold a replica back. `move_throttles`: throttles of moves. `remote_read_growth`: reads of the remote tier by
brokers' meters. `observer.watches.finding_watch` reads, calls and writes.
"""
