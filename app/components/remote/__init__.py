"""Parts of the pages about the remote tier: copies, segments, retention debt, cost, readers. Pure."""
