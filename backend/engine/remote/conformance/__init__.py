"""Suites that every plug-in of the remote tier must pass. An author runs them with pytest in their own project:

    from backend.engine.remote.conformance.storage import RemoteStorageConformance

    class TestMyStorage(RemoteStorageConformance):
        def open_storage(self, folder):
            return my_package.open_storage({"broker.id": "1", "bucket": "test"})

Nothing here imports pytest, so the suites are part of the product; docs/remote-plugins.md has the whole procedure.
"""
