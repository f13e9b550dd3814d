"""The pipeline: decoding, ledger rules, sinks on both databases, and the whole job."""
