"""Starts the one Spark session of the pipeline: local, small, quiet, from this installation alone."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark.java import Java, write_script
from spark.settings import driver_host, executor_memory

CORES: Final = 2
# Spark's own libraries take about 300 MB, a batch of 50,000 records 35 MB in Arrow twice over.
DRIVER_MEMORY: Final = "768m"
# A batch that is larger is refused when it comes to the driver, instead of filling the memory; the job then halves it.
BATCH_MAX: Final = "192m"
SECRETS: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore|url"

_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Named, because Spark would set the level of all to this one's, which is WARN unless said, and say so.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# Why a query ended is told by the job, in one line; Spark tells it in sixty.
logger.query.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.query.level = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p spark %c{1}: %m%n
"""

_PYTHON_SCRIPT: Final = """\
#!/bin/sh
# Runs Python without Spark's zip of pyspark on its path, as pyspark is installed.
set -f
IFS=:
paths=
for path in $PYTHONPATH; do
  case $path in *pyspark.zip | *-src.zip | *.jar) ;; *) paths=$paths:$path ;; esac
done
export PYTHONPATH="${{paths#:}}"
unset IFS
exec {python} "$@"
"""


def prepare_environment(java: Java, spark_dir: Path, *, local: bool = True) -> None:
    """Point Spark at ``java``, at this Python and at this package; nothing of another Spark may leak in.

    ``local``: all of Spark is on this machine; executors elsewhere must have this Python where it is here.
    """
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        os.environ.pop(name, None)
    os.environ["JAVA_HOME"] = str(java.home)
    # Workers take PYSPARK_PYTHON or python3 from PATH, never sys.executable, and fail with a mere warning.
    script = str(_python_script(spark_dir))
    os.environ["PYSPARK_PYTHON"] = script if local else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = script
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no threads at import, see worker_daemon.py
    os.environ["SPARK_LOCAL_DIRS"] = str(spark_dir / "local")
    # Workers import `spark.source` and `backend.protocol` by name, also from a checkout that is not installed.
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def _python_script(spark_dir: Path) -> Path:
    """This Python for Spark's own processes, which start in half the time by it.

    Spark puts its zip of pyspark before all else on their path, and Python cannot keep compiled modules in a zip: each
    of the four that come before the first row would compile pyspark again.
    """
    script = spark_dir / "bin" / "python"
    executable = write_script(script, _PYTHON_SCRIPT.format(python=shlex.quote(sys.executable)))
    return script if executable else Path(sys.executable)


def start_session(
    spark_dir: Path,
    *,
    name: str = "ebbline-pipeline",
    poll_interval_ms: int = 200,
    jars: Sequence[Path] = (),
    master: str = f"local[{CORES}]",
    ui_port: int = 0,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """Start the JVM and the session: 4 to 6 s, 2 to 3 with a class archive. Call `prepare_environment` first.

    ``jars`` are for Spark's classpath, here and on executors. ``ui_port``: Spark's own pages on the loopback address
    (SPARK_LOCAL_IP), 0 for none. ``java_options`` are added to the JVM's own.
    """
    log4j = spark_dir / "log4j2.properties"
    log4j.parent.mkdir(parents=True, exist_ok=True)
    log4j.write_text(_LOG4J)
    options = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # starts faster; the work itself is in Python and the database
        "-Xss8m",  # a stop in the middle of a batch overflows the default stack of the stream's thread
        f'"-Dlog4j2.configurationFile={log4j.as_uri()}"',
        *(f'"{option}"' for option in java_options),
    ]
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.maxResultSize": BATCH_MAX,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "true" if ui_port else "false",
        "spark.ui.port": str(ui_port),  # or one of the 16 above it, where that is in use
        # Passwords and keys of Kafka's clients are options of the source; plans show options.
        "spark.redaction.regex": SECRETS,
        "spark.sql.redaction.options.regex": SECRETS,
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "spark.worker_daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": (spark_dir / "warehouse").as_uri(),
        # How often the source is asked while it has nothing new; the default of 10 ms is 100 requests a second.
        "spark.sql.streaming.pollingDelay": str(poll_interval_ms),
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Renames on a local disk instead of Hadoop's file contexts: 30 ms a batch instead of 100.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    if not master.startswith("local["):
        settings |= _of_cluster()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _of_cluster() -> dict[str, str]:
    """Options for executors, which are other processes on this machine or others, to find this program."""
    address = driver_host(os.environ)
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": "127.0.0.1" if address == "127.0.0.1" else "0.0.0.0",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.memory": executor_memory(os.environ),
    }
