"""Starts the dashboard: ``python -m app.run --port 8501``. The environment says which cluster (EBBLINE_*)."""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path
from urllib.parse import urlsplit

from app.access.addresses import LOOPBACK_NAMES, Addresses
from app.server import application
from backend.data_folder.dashboard_login import DashboardLogin
from backend.runtime.gc_tuning import GC_THRESHOLDS
from backend.runtime.private_files import keep_files_private

PACKAGE = Path(__file__).resolve().parent


def config_folder() -> Path:
    """The folder that holds `.streamlit`: beside the package in a checkout, inside it in an installed wheel."""
    return next((folder for folder in (PACKAGE.parent, PACKAGE) if (folder / ".streamlit").is_dir()), PACKAGE.parent)


def main() -> None:
    """Replaces this process's work with Streamlit's server; ends when that ends."""
    keep_files_private()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8501)
    options = parser.parse_args()
    data_dir = os.environ.get("EBBLINE_DATA_DIR")
    if not data_dir:
        parser.error("EBBLINE_DATA_DIR is not set: `ebbline up` runs the dashboard and hands it over.")
    public_url = os.environ.get("EBBLINE_PUBLIC_URL") or None
    login = DashboardLogin(Path(data_dir).absolute() / "run")
    # A read of 26,000 rows makes 100,000 containers: with Python's 700 the collector walks through all of the imported
    # libraries meanwhile, which doubles its time.
    gc.set_threshold(*GC_THRESHOLDS)
    # Streamlit looks for its settings and theme in the working directory.
    os.chdir(config_folder())
    # With an address that is set, Streamlit asks no external service for the machine's own, for any Origin.
    server = {"server.port": options.port, "browser.serverAddress": _name_in(public_url)}
    application(login, Addresses.of(options.port, public_url)).run(config=server)


def _name_in(public_url: str | None) -> str:
    return (urlsplit(public_url).hostname if public_url else None) or LOOPBACK_NAMES[0]


if __name__ == "__main__":
    main()
