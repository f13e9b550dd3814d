"""Conditions that must hold before `ebbline up` starts anything.

``preparation`` runs them in order. ``preflight``: ports, folders, database. ``store_check``: the remote tier answers.
``attach``: the cluster to watch answers.
"""
