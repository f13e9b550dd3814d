"""Findings: rules over samples and ledger, and the findings that each round of them opens, keeps and closes.

Pure: `finding_context` is the input of the `rules`, `catalogue` lists them with their slugs and runbooks
(docs/runbooks), `evaluate` compares their result with what is open. `disk_rates`: how fast disks fill.
`observer.watches.finding_watch` reads, calls and writes.
"""
