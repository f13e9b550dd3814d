"""Facts and decisions of tiered storage as pure functions and frozen values."""
