"""What needs attention: rules over samples and ledger, and what each round of them opens, keeps and closes.

Pure: `sight` is what the rules look at, `rules_*` are the rules, `evaluate` compares their answer with what is open.
`observer.finding_watch` reads, calls and writes. Slugs, and the runbook of each in docs/runbooks: `catalogue`.
"""
