"""Produce (0), in reading order.

- ``produce``: the handler, from the request's topics to the response;
- ``produce_append``: the batches of one request, appended within its limits of time and decompressed bytes;
- ``produce_verification``: transactional batches, which their coordinator confirms first.
"""
