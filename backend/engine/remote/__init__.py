"""The remote tier of a partition (KIP-405): copying segments out, reading them back, and the metadata that says where
they are.

A copy: `manager/remote_log_manager` (whose turn it is) → `manager/copy_task` (which segments, in what order) →
`metadata/topic_based_metadata_manager` (STARTED, FINISHED on the metadata topic) and `storage/object_store_manager`
(the bytes). A read: `manager/remote_read` → `metadata/remote_log_metadata_cache` (which segment) →
`indexes/remote_index_cache` (which position) → `storage`. Everything here runs on the event loop except calls to the
storage, which run on workers.

In reading order:

- `storage`: the contract of a storage plug-in, and the built-in one on an object store.
- `metadata`: which segments exist, as records of `__remote_log_metadata`.
- `indexes`: index files of remote segments, cached on local disk.
- `manager`: the tasks that copy, expire and delete, and the reads.
- `plugins`, `plugin_metrics`: built-in and others' storages and metadata managers, by name; `conformance` has the
  suites that all of them pass.
- `assembly`: a broker's remote log manager from its settings; `bounded_pool` and `remote_meters` are shared by several
  parts.
"""
