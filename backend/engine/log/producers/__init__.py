"""Producers of one partition: idempotence (KIP-98) and transactions (KIP-98, KIP-890).

`producer_state_manager` keeps a `producer_entry` for each producer and stores them as `producer_snapshot` files;
`transaction_verification` holds the producers whose transaction the coordinator has yet to confirm.
"""
