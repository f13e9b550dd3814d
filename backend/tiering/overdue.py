"""How long a copy to the remote tier and a deletion there may take; findings and pages judge by the same limits."""

from __future__ import annotations

from typing import Final

# A copy is hung beyond three times what copies take at worst (the 99th percentile), and never before it had a minute.
HUNG_FACTOR: Final = 3.0
HUNG_MS_MIN: Final = 60_000
# Kafka deletes a remote segment within seconds; a minute means that the remote tier does not do it.
DELETE_OVERDUE_MS: Final = 60_000
