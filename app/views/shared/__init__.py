"""Cards and controls of several pages: the instant of time travel, the comparison of two instants."""
