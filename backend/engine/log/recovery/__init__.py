"""Opening the folder of a partition after a clean stop or a crash.

`log_loader` decides which files count and makes the log; `segment_recovery` reads a segment's batches to rebuild its
indexes and the producer state; `interrupted_swaps` finishes or undoes a compaction that a crash interrupted.
"""
