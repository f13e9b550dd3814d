"""The child processes of `ebbline up`.

``child_specs`` names them, ``child`` runs and restarts one, ``prestart`` starts the backend early, ``broker_processes``
has one for each broker, ``process_health`` asks whether they live and serve.
"""
