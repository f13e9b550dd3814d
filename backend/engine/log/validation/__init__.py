"""Checks of batches before they are appended.

`produced_batch` checks a client's batch, `record_rules` the records in it against the topic's settings;
`trusted_batches` checks the batches that a leader or this broker itself has made.
"""
