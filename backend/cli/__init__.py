"""The `ebbline` command."""
