"""Kafka's protocol as pure functions over bytes: messages, frames, record batches and the records of internal topics.

Nothing here reads a clock, a file or a socket.
"""
