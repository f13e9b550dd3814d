"""A Spark session for notebooks and scripts, with ``format("rlmm")`` in it: one call."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from spark import source
from spark.java import find_java
from spark.session import prepare_environment, start_session


def session(folder: Path | str = ".ebbline/spark-notebook") -> SparkSession:
    """A local session on two cores, as the pipeline's; ``folder`` keeps what Spark writes beside.

    Raises NoUsableJava, which says what to install.
    """
    path = Path(folder).absolute()
    prepare_environment(find_java(path / "java", os.environ), path)
    started = start_session(path, name="ebbline-notebook")
    source.register(started)
    return started
