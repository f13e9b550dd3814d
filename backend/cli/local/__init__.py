"""Commands that work on this machine's data folder and database, without the control API.

``local_settings`` has what they share: the settings of `ebbline up`, and how they fail. ``audited`` writes their audit
rows. Then one file for each: ``pipeline_commands``, ``database_commands``, ``token_commands``, ``login``.
"""
