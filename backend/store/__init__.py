"""The database of the control plane: schema, engine, reads and writes.

Place in the flow: the observer (offsets, configs, phases) and the pipeline (remote log
segment metadata) write it, the dashboard reads it and never asks a broker while it draws.
The same schema serves SQLite (the default, one file, WAL) and PostgreSQL.

``tables`` is the schema and ``migrate`` brings a database to it; ``connection`` opens the database, ``writes`` and
``queries`` are by the subject of their rows (``maintenance_window`` and ``finding_age`` are of their values),
``history`` says what is removed when, ``backups`` copies and restores.
"""
