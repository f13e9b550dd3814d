"""The parent of Spark's Python workers (``spark.python.daemon.module``).

It imports what they need once, before they are forked. A fork must not meet threads: session.py keeps numpy from
starting any (OPENBLAS_NUM_THREADS=1), and the one of pyarrow's allocator is made for forks. Executors elsewhere have
Spark's zip of pyspark first on their path, where Python keeps no compiled modules; here it is taken away
(`session._python_script` does so on this machine).
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("pyspark.zip", "-src.zip"))]

from pyspark.daemon import manager  # noqa: E402  # after the path is right

import spark.source  # noqa: E402, F401  # for the workers to come

if __name__ == "__main__":
    manager()
