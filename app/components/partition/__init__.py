"""Parts of a partition's pages: ranges, offsets over time, segments, epochs, durability. Pure."""
