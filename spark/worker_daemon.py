"""The parent of Spark's Python workers (``spark.python.daemon.module``): starts them in a tenth of the time.

Spark puts its own zip of pyspark first on the workers' path, and Python cannot keep compiled
modules in a zip, so every worker would compile pyspark anew (1 s each, five of them before the
first row). Here pyspark comes from the installation instead, and what the workers need is
imported once, before they are forked. A fork must not meet threads: session.py keeps numpy from
starting any (OPENBLAS_NUM_THREADS=1), and the one of pyarrow's allocator is made for forks.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("pyspark.zip", "-src.zip"))]

from pyspark.daemon import manager  # noqa: E402  # after the path is right

import spark.source  # noqa: E402, F401  # for the workers to come

if __name__ == "__main__":
    manager()
