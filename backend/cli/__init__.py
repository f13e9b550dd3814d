"""The `ebbline` command.

``entry`` starts it, ``main`` names every command, ``lab`` has `ebbline lab`. Packages by subject: ``inspect`` (commands
that show), ``plans`` (commands that change a cluster), ``quorum``, ``remote``, ``local`` (commands that work on this
machine's files and database), ``shared`` (options, the API's client, tables).
"""
