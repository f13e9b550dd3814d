"""The Partitions page: its data, the list, the card of the selected partition."""
