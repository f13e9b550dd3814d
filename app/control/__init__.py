"""The control API as the dashboard calls it: ``api_client``, ``user_api`` in the name of a page's user,
``finding_notes`` for what a person decides about findings, ``rule_changes`` for settings of rules.
"""
