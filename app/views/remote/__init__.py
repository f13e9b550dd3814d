"""The Remote log page: its data, the ledger, cost, the metadata topic."""
