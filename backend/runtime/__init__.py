"""Settings and questions of every process to Python and the operating system; imports nothing of ours.

``gc_tuning``: the garbage collector. ``private_files``: rights of files. ``liveness``: whether a child's event loop
turns. ``redact``: texts for logs and terminals without secrets.
"""
