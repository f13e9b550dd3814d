"""The data folder of one cluster: who it belongs to, and where everything in it lies.

``cluster.json`` is written last, atomically, once everything else has been checked, so that a
refused start leaves nothing behind.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from backend.runtime.private_files import write_private

FORMAT_VERSION: Final = 1


class DataFolderError(Exception):
    """The folder cannot be used: one sentence saying what and what to do."""


class IdentityLost(DataFolderError):
    """``cluster.json`` of a folder that is in use is gone or damaged; what happened, without the way out."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Content of ``cluster.json``."""

    format: int
    cluster_id: str
    cluster_name: str
    brokers: int
    broker_port: int
    controller_port: int
    # Voters of the metadata quorum; folders of before there could be several do not say it.
    controllers: int = 1


class DataFolder:
    """Paths below ``--data`` and the identity they belong to."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._lock_fd = -1

    def broker_log_dir(self, node_id: int) -> Path:
        return self.root / "brokers" / str(node_id) / "log"

    @property
    def remote(self) -> Path:
        return self.root / "remote"

    @property
    def quorum(self) -> Path:
        """The offset of the metadata that the voters have acknowledged, outside their own folders."""
        return self.root / "quorum"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def identity_file(self) -> Path:
        return self.root / "cluster.json"

    def read_identity(self) -> ClusterIdentity | None:
        """The owner of the folder; None when it is new. Raises DataFolderError for a foreign or newer one."""
        path = self.identity_file
        if not path.exists():
            brokers = self.root / "brokers"
            # Empty folders are where disks of brokers were mounted before the first start.
            empty = {brokers.name} if brokers.is_dir() and all(path.is_dir() for path in brokers.rglob("*")) else set()
            if self.root.is_dir() and any(p.name not in KNOWN_NEW | empty for p in self.root.iterdir()):
                if brokers.is_dir() and not empty:
                    raise IdentityLost(f"The folder {self.root} has brokers, but no cluster.json")
                raise DataFolderError(
                    f"The folder {self.root} is not empty and has no cluster.json: choose another folder with --data."
                )
            return None
        try:
            content = json.loads(path.read_text())
            version = int(content["format"])
            if version > FORMAT_VERSION:
                raise DataFolderError(
                    f"The folder {self.root} has format {version}, this ebbline reads up to {FORMAT_VERSION}: "
                    "use the newer ebbline that wrote it, or another folder with --data."
                )
            fields = ClusterIdentity.__dataclass_fields__
            content.setdefault("controllers", 1)
            for name, kept in fields.items():
                if type(content[name]).__name__ != kept.type:
                    raise ValueError(f"{name} is {content[name]!r}, not {kept.type}")
            return ClusterIdentity(**{name: content[name] for name in fields})
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise IdentityLost(f"{path} cannot be read ({error})") from error

    def check_writable(self) -> None:
        """Raises DataFolderError unless the folder (or the parent it will be made in) takes files."""
        probe = self.root
        while not probe.exists():
            probe = probe.parent
        if not probe.is_dir():
            raise DataFolderError(f"{probe} is a file: choose a folder with --data.")
        if not os.access(probe, os.W_OK | os.X_OK):
            raise DataFolderError(f"The folder {probe} cannot be written: fix its permissions or use --data.")

    def lock(self) -> None:
        """Makes the folder and holds it until the process ends. Raises DataFolderError when another holds it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.run.mkdir(mode=0o700, exist_ok=True)
            self.run.chmod(0o700)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            self._lock_fd = os.open(self.run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataFolderError(
                f"Another `ebbline up` is using {self.root}: stop it, or choose another folder with --data."
            ) from error
        except OSError as error:
            raise DataFolderError(f"The folder {self.root} cannot be written: {error.strerror or error}.") from error

    def note_database(self, url: str | None) -> None:
        """The database of `ebbline up`, without its password, for the commands beside it; None: the folder's own.

        OSError when it cannot be written.
        """
        path = self.run / "database.url"
        if url is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(url + "\n")

    def noted_database(self) -> str | None:
        """The note of `note_database`."""
        try:
            return (self.run / "database.url").read_text().strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def write_identity(self, identity: ClusterIdentity) -> None:
        write_private(self.identity_file, json.dumps(asdict(identity), indent=2))


# Files that a refused first start or a hand-written settings file may leave in a folder that is still new.
KNOWN_NEW: Final = frozenset(
    {
        "alerts.toml",
        "ebbline.toml",
        "run",
        "logs",
        "spark",
        "ebbline.db",
        "ebbline.db-wal",
        "ebbline.db-shm",
        "ebbline.db-turn",
        "ebbline.db-backups",
    }
)


def new_cluster_id() -> str:
    """A random Kafka cluster id: 22 characters of URL-safe base64 that do not start with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
