"""Starts the dashboard: ``python -m app.run --port 8501``. The environment says which cluster (EBBLINE_*)."""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

from app.server import application
from backend.interpreter import GC_THRESHOLDS

PACKAGE = Path(__file__).resolve().parent


def config_folder() -> Path:
    """Where `.streamlit` lies: beside the package in a checkout, inside it in an installed wheel."""
    return next((folder for folder in (PACKAGE.parent, PACKAGE) if (folder / ".streamlit").is_dir()), PACKAGE.parent)


def main() -> None:
    """Replaces this process's work with Streamlit's server; ends when that ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8501)
    options = parser.parse_args()
    # A read of 26,000 rows makes 100,000 containers: with Python's 700 the collector walks through all of the imported
    # libraries meanwhile, which doubles its time.
    gc.set_threshold(*GC_THRESHOLDS)
    # Streamlit looks for its settings and theme in the working directory.
    os.chdir(config_folder())
    application().run(config={"server.port": options.port})


if __name__ == "__main__":
    main()
