"""Types of the numpy columns in which many records are read at once. Imported only by modules that numpy has loaded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
FlagColumn = NDArray[np.bool_]
ByteColumn = NDArray[np.uint8]
