"""Client quotas, in reading order.

- ``client_quota_manager``: how much of one broker's bytes, time and connections clients may use;
- ``controller_mutation_quota``: how many partitions a client may create or delete (KIP-599).

The API that shows and changes the limits is ``apis/client_quotas.py``.
"""
