"""Operations of consumers."""

from __future__ import annotations

from tests.incidents.rigs.cluster_clients import ClusterClients
from tests.incidents.rigs.consumers import Reader, commit


class ReaderOperations(ClusterClients):
    """Readers go on until `tidy`."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: set[str] = set()

    def read_from_start(self, *, topic: str, group: str) -> None:
        self._begin(topic, group, members=True, from_start=True)

    def read_assigned(self, *, topic: str, group: str) -> None:
        self._begin(topic, group, members=False, from_start=True)

    def follow(self, *, topic: str, group: str) -> None:
        self._begin(topic, group, members=True, from_start=False)

    def _begin(self, topic: str, group: str, *, members: bool, from_start: bool) -> None:
        self._groups.add(group)
        self.readers.append(Reader(self.bootstrap, topic, group, members=members, from_start=from_start))

    def commit(self, *, topic: str, group: str, offset: int) -> None:
        self._groups.add(group)
        commit(self.bootstrap, topic, group, offset)

    def end_readers(self) -> None:
        for reader in self.readers:
            reader.stop()
        self.readers.clear()
        for group in self._groups:
            self.delete_group(group)
        self._groups.clear()
