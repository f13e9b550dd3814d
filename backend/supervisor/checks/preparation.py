"""Everything that can refuse a start, in order; then the data folder is locked and its identity written."""

from __future__ import annotations

import os
import sys

from backend.data_folder.data_folder import (
    FORMAT_VERSION,
    ClusterIdentity,
    DataFolder,
    DataFolderError,
    IdentityLost,
    new_cluster_id,
)
from backend.data_folder.lost_identity import way_out
from backend.runtime.redact import printable
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import (
    PreflightError,
    check_alerts_file,
    check_api_listen,
    check_data_path,
    check_database,
    check_open_files,
    check_pipeline,
    check_ports,
    check_remote_location,
)
from spark import java


class Refused(Exception):
    """The start was refused before anything ran."""


def prepare(settings: Settings) -> tuple[DataFolder, ClusterIdentity]:
    """Checks everything, locks the folder, writes the identity last. Raises Refused."""
    folder = DataFolder(settings.data_dir)
    try:
        identity = folder.read_identity()
        check_data_path(settings, folder.root)
        folder.check_writable()
        cluster_id = None if settings.attach is None else _attached_cluster_id(settings)
        if identity is not None:
            _check_identity(settings, identity, folder, cluster_id)
            _check_broker_folders(folder, identity)
            settings = as_made(settings, identity)
        elif cluster_id is None and settings.voters > settings.brokers:
            raise Refused(
                f"{settings.voters} controllers need as many brokers, not {settings.brokers}: use --controllers 1,"
                " or more --brokers."
            )
        check_open_files(settings)
        check_ports(settings)
        check_api_listen(settings)
        check_alerts_file(settings, folder.root, os.environ)
        check_database(settings, first=identity is None, attached=cluster_id)
        warning = check_remote_location(settings, first=identity is None)
        if settings.pipeline:
            check_pipeline(settings, os.environ)
            # Last of the checks: it may write a launcher script below the data folder.
            java.find_java(folder.root / "spark" / "java", os.environ)
        if warning is not None:
            sys.stderr.write(f"ebbline: {printable(warning)}\n")
        folder.lock()
        folder.note_database(database_to_note(settings))
        settings.keep()
        if identity is None:
            identity = ClusterIdentity(
                format=FORMAT_VERSION,
                cluster_id=cluster_id or new_cluster_id(),
                cluster_name=settings.cluster_name,
                brokers=settings.brokers if cluster_id is None else 0,
                broker_port=settings.broker_port,
                controller_port=settings.controller_port,
                controllers=settings.voters if cluster_id is None else 1,
            )
            folder.write_identity(identity)
    except IdentityLost as error:
        raise Refused(f"{error}: {way_out(folder.root)}") from error
    except (DataFolderError, PreflightError, java.NoUsableJava) as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(f"The folder {folder.root} cannot be written: {error.strerror or error}.") from error
    return folder, identity


def database_to_note(settings: Settings) -> str | None:
    """The database's URL without any password; None for the folder's own file."""
    if settings.database_url is None:
        return None
    from backend.store.connection.database import without_password  # only here: it takes half a second to import

    return without_password(settings.database_url)


def _attached_cluster_id(settings: Settings) -> str:
    from backend.supervisor.checks.attach import attached_cluster_id  # only here: it imports the control plane's client

    return attached_cluster_id(settings)


def _check_identity(settings: Settings, identity: ClusterIdentity, folder: DataFolder, attached_id: str | None) -> None:
    if attached_id is not None and identity.cluster_id != attached_id:
        raise Refused(
            f"The folder {folder.root} belongs to another cluster ({identity.cluster_id}, not {attached_id}): "
            "choose another folder with --data."
        )
    if attached_id is None and identity.brokers == 0:
        raise Refused(
            f"The folder {folder.root} belongs to an attached cluster: give --attach, or choose another with --data."
        )
    if attached_id is None and identity.brokers != settings.brokers:
        raise Refused(
            f"The folder {folder.root} holds a cluster of {identity.brokers} brokers, not {settings.brokers}: "
            f"use --brokers {identity.brokers}, or another folder with --data."
        )
    if settings.controllers is not None and identity.controllers != settings.controllers:
        raise Refused(
            f"The folder {folder.root} holds a cluster of {identity.controllers} controllers, not"
            f" {settings.controllers}, which cannot be changed: leave --controllers out, or use another folder with"
            " --data."
        )
    if "cluster_name" in settings.model_fields_set and identity.cluster_name != settings.cluster_name:
        raise Refused(
            f"The folder {folder.root} belongs to cluster {identity.cluster_name!r}, not {settings.cluster_name!r}: "
            "leave --cluster-name out, or choose another folder with --data."
        )


def _check_broker_folders(folder: DataFolder, identity: ClusterIdentity) -> None:
    from backend.supervisor.recovery import broker_folders

    try:
        folders = broker_folders.read_broker_folders(folder, identity)
    except OSError as error:
        raise Refused(f"The folder {folder.root} cannot be read ({error}): fix its permissions.") from error
    refusal = (
        broker_folders.misplaced(folders)
        or broker_folders.recovery_interrupted(folder)
        or broker_folders.quorum_lost(folders, identity.controllers)
    )
    if refusal is not None:
        raise Refused(refusal)


def as_made(settings: Settings, identity: ClusterIdentity) -> Settings:
    """With the voters that the folder was made with: they stand in every voter's log."""
    return settings.model_copy(update={"controllers": identity.controllers})
