"""Kafka's APIs: one module per API or tight family, each with its handlers and a tuple ``APIS``.

``net`` gives a decoded request to the handler that ``table`` names; the handler asks the parts in ``services`` and
returns the response message. This is the one place where exceptions become error codes of a response.
``api_declaration`` is what a module says of its API: key, versions, listeners, rights. Folders: ``produce`` and
``fetch`` with their own steps, ``quotas``, and ``support`` for what several handlers share.
"""
