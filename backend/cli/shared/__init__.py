"""Parts of many commands: ``options``, ``api_session`` (the API's client), ``tables`` and ``value_text`` (output),
``finding_groups`` (findings under their causes).
"""
