"""The operations that answers list on request (KIP-430), as bit fields of AclOperation: all, as there are no ACLs."""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(2**31)
# read, write, create, delete, alter, describe, describe configs, alter configs
TOPIC: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
# create, alter, describe, cluster action, describe configs, alter configs, idempotent write
CLUSTER: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
