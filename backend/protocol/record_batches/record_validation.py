"""The check that the bytes of a batch are the records that its header counts, one by one or many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_check import MalformedRecords, RecordsSummary, check_each, check_only_record
from backend.protocol.record_batches.record_codec import RECORD_BYTES_MIN

# From so many records on numpy's cost per call is less than that of the loop per record.
MANY_RECORDS: Final = 128
# So many take longer one by one than numpy takes to be there.
LOAD_RECORDS: Final = 200_000


class _ColumnCheck:
    """`record_columns`, which brings numpy: 0.1 s and 19 MB that a process without large batches never needs."""

    def __init__(self) -> None:
        self.check_many: Callable[[Any, int], RecordsSummary] | None = None
        self.requested = False

    def load(self) -> None:
        from backend.protocol.record_batches.record_columns import check_many

        self.check_many, self.requested = check_many, False


_column_check: Final = _ColumnCheck()


def columns_requested() -> bool:
    """Whether a large batch came that was checked one by one, for want of :func:`load_columns`."""
    return _column_check.requested


def load_columns() -> None:
    """Makes large batches cost a fraction; takes 0.1 s the first time, so call it on a thread."""
    _column_check.load()


def check_records(data: Any, count: int) -> RecordsSummary:
    """Checks that `data`, what a batch's codec gave back, is exactly `count` records (at least one).

    Raises MalformedRecords when it is not.
    """
    if count < 1 or count * RECORD_BYTES_MIN > len(data):
        raise MalformedRecords(f"a batch claims {count} records in {len(data)} bytes")
    if count >= MANY_RECORDS:
        if count >= LOAD_RECORDS:
            load_columns()
        if _column_check.check_many is not None:
            return _column_check.check_many(data, count)
        _column_check.requested = True
    elif count == 1 and (summary_of_one := check_only_record(data)) is not None:
        return summary_of_one
    buffer = data if isinstance(data, bytes | bytearray) else bytes(data)
    try:
        end, summary = check_each(buffer, 0, 0, count)
    except IndexError:
        raise MalformedRecords(f"the records of a batch of {count} are cut off after {len(data)} bytes") from None
    except MalformedRecords:
        raise
    except DecodeError as error:
        raise MalformedRecords(str(error)) from None
    if end != len(data):
        raise MalformedRecords(f"{len(data) - end} bytes follow the last of {count} records of a batch")
    return summary
