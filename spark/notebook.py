"""A Spark session for notebooks and scripts, with ``format("rlmm")`` in it: one call."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from spark import class_archive, source
from spark.java import find_java
from spark.session import prepare_environment, start_session


def session(folder: Path | str = ".ebbline/spark-notebook") -> SparkSession:
    """A local session on two cores, as the pipeline's; ``folder`` keeps what Spark writes beside.

    Raises NoUsableJava, which says what to install.
    """
    path = Path(folder).absolute()
    java = find_java(path / "java", os.environ)
    prepare_environment(java, path)
    started = start_session(path, name="ebbline-notebook", java_options=class_archive.java_options(java))
    source.register(started)
    return started
