"""Remote storage: the bytes of segments, nothing about which exist (KIP-405).

`remote_storage_manager` is the contract of a plug-in with its errors, `object_store_manager` the built-in one;
`checked_storage` holds others' plug-ins to the contract, `store_errors` shortens messages of the object store's client.
"""
