"""The Followers page, its cards of depth and of reasons."""
