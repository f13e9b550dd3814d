"""Fetch (1), in reading order.

- ``fetch``: the handler of a broker's listener, for consumers and followers;
- ``fetch_session_cache``: incremental fetch sessions on the serving side (KIP-227);
- ``metadata_log_fetch``: the handler of a controller's listener, for `__cluster_metadata`.
"""
