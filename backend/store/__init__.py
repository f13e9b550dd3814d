"""The database of the control plane: schema, engine, reads and writes.

Place in the flow: the observer (offsets, configs, phases) and the pipeline (remote log
segment metadata) write it, the dashboard reads it and never asks a broker while it draws.
The same schema serves SQLite (the default, one file, WAL) and PostgreSQL.
"""
