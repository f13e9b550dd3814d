"""Produce (0), in reading order.

- ``produce``: the handler, from the request's topics to the response;
- ``produce_rows``: one partition's lookup, its row of the response and its counts;
- ``single_batch_produce``: the fast path of one batch;
- ``repeated_partitions``: partitions that a request names twice;
- ``produce_append``: the batches of one request, appended within its limits of time and decompressed bytes;
- ``produce_verification``: transactional batches, which their coordinator confirms first.
"""
