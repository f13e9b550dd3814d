"""Source text of the functions that encode and decode one message in one version, from the message tables."""
