"""The remote tier of a partition (KIP-405): copying segments out, reading them back, and the metadata that says where
they are.

A copy travels ``rlm`` (whose turn is it) → ``rlm_copy`` (which segments, in what order) → ``rlmm`` (STARTED, FINISHED
on the metadata topic) and ``rsm`` (the bytes). A read travels ``rlm_read`` → ``rlmm_cache`` (which segment) →
``index_cache`` (which position) → ``rsm``. Everything here runs on the event loop except calls to the storage, which
run on workers.

``plugins`` opens storage and metadata manager by name, built-in ones and others' entry points; ``conformance`` has the
suites that all of them pass. ``rlmm_consumer`` reads the metadata topic into the caches and ``rlmm_files`` keeps them
over a restart.
"""
