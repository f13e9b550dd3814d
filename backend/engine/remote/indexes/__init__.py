"""Index files of remote segments: `remote_indexes` looks up in their bytes, `remote_index_cache` keeps them on disk."""
