"""Record batches of magic 2 and the records in them, in reading order.

- ``record_batch``: the header, its check sum, and batches built from records (Kafka's `DefaultRecordBatch`);
- ``record_codec``: one record to bytes and back (`DefaultRecord`);
- ``compression``: the four codecs;
- ``control_records``: control batches, which no application sees;
- ``record_validation``: the check that the bytes of a batch are the records its header counts, by
- ``record_check``: one record after the other, or
- ``record_columns`` and ``record_table``: many records at once, as columns of numpy.
"""
