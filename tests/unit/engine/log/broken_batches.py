"""Batches with a right CRC whose records are none, as logs of earlier versions may hold them."""

from __future__ import annotations

import struct

from crc32c import crc32c

from backend.protocol.record_batches.record_batch import HEADER_BYTES

NO_RECORD = b"\xff" * 40


def broken_batch(body: bytes = NO_RECORD, *, count: int = 1, base_offset: int = 0, now_ms: int = 0) -> bytearray:
    """A batch that counts records which its body does not hold."""
    batch = bytearray(HEADER_BYTES) + body
    struct.pack_into(
        ">qiibIhiqqqhii", batch, 0, base_offset, len(batch) - 12, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1,
        count,
    )  # fmt: skip
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch
