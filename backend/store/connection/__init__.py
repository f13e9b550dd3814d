"""Opens the database.

``database`` is for both kinds, ``sqlite`` and ``postgresql`` for one each; ``limits`` has every wait's end,
``writer_lock`` queues writers of SQLite, ``requirements`` are those on PostgreSQL, ``database_faults`` explains errors.
"""
