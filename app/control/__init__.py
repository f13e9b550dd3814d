"""The control API as the dashboard calls it: ``api_client``, and ``user_api`` in the name of a page's user."""
