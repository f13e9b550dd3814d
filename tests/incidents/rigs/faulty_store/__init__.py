"""The plug-in that gives Apache Kafka's LocalTieredStorage faults, compiled when it is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.incidents.rigs.small_disks import CannotPlay
from tests.incidents.rigs.store_faults import StoreFaultNow

CLASS_NAME: Final = "FaultyTieredStorage"
SOURCE: Final = Path(__file__).with_name(f"{CLASS_NAME}.java")


def compiled(libs: Path, folder: Path) -> Path:
    """The folder of its class. Raises CannotPlay without a Java compiler."""
    if shutil.which("javac") is None:
        raise CannotPlay("a Java compiler is unavailable")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-proc:none", "-cp", str(libs / "*"), "-d", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotPlay(f"{SOURCE.name} does not compile: {done.stderr[-500:]}")
    return folder


def settings(classes: Path, faults: Path) -> dict[str, str]:
    """Broker settings beside those of LocalTieredStorage."""
    return {
        "remote.log.storage.manager.class.name": CLASS_NAME,
        "remote.log.storage.manager.class.path": str(classes),
        "rsm.config.faults": str(faults),
    }


def write_fault(path: Path, now: StoreFaultNow) -> None:
    """For all brokers, from their next call of the store on."""
    written = path.with_suffix(".new")
    written.write_text(f"fault={now.fault}\ntopic={now.topic}\ndelay.ms={now.delay_ms}\n")
    written.replace(path)
