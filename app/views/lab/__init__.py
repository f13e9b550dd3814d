"""The Lab page: the bootstrap race and fault injection."""
