"""The page of one partition: its data (``partition_data``), its cards, its actions, its report."""
