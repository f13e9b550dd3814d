"""The server that stands for Amazon S3 in tests keeps nothing from one test file to the next."""

from __future__ import annotations

from tests.s3_server import S3Server


def test_a_new_server_holds_nothing_of_the_one_before() -> None:
    with S3Server() as before:
        before.client.put_object(Bucket="bucket", Key="left", Body=b"x")
        assert before.client.list_objects_v2(Bucket="bucket")["KeyCount"] == 1
    with S3Server() as server:
        assert server.client.list_objects_v2(Bucket="bucket")["KeyCount"] == 0
