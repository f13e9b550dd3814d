"""The settings that a data folder's `ebbline up` runs with, for commands beside it."""

from __future__ import annotations

from typing import Any

from backend.data_folder.data_folder import DataFolder, DataFolderError
from backend.settings.kept_settings import FILE
from backend.settings.settings import Settings


def read_beside_up(**given: Any) -> Settings:
    """Settings with what the folder's `ebbline up` kept, and with its cluster's brokers.

    Raises ValidationError, KeptSettingsError, and what reading ``ebbline.toml`` may raise.
    """
    settings = Settings.beside_up(**given)
    try:
        identity = DataFolder(settings.data_dir).read_identity()
    except DataFolderError:
        return settings  # commands that need the identity say so themselves
    if identity is None or identity.brokers == 0:
        return settings
    settings.brokers = identity.brokers
    # An earlier version kept nothing: the port that the folder was made with is the best guess.
    if not (settings.data_dir / FILE).exists() and "broker_port" not in settings.model_fields_set:
        settings.broker_port = identity.broker_port
    return settings
