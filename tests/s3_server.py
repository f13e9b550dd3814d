"""moto's Amazon S3 over HTTP, which can be made to fail: what the remote tier is tested against."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, Self

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

REGION, KEY = "us-east-1", "test"


class SilentHandler(WSGIRequestHandler):
    """Its log of each request would bury what a run of the incidents prints."""

    def log_request(self, *_: object) -> None:
        return


class S3Server:
    """A context manager with one bucket, named `bucket`; `endpoint` is its address.

    `fail_next` makes the next requests answer with an error status, `refuses` all of a method (`*`: of any) until it is
    taken away; `answer` is given instead of a refusal's empty one; `requests` are (method, path with query).
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fail_next: list[int] = []
        self.refuses: dict[str, int] = {}
        self.answer = ""
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._application, threaded=True, request_handler=SilentHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        # moto keeps what it stores in this process, for every server: a test file's before this one has left its own.
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"").close()
        self.client.create_bucket(Bucket="bucket")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def client(self) -> Any:
        """Amazon's own client of this server."""
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=KEY
        )

    def _application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.requests.append((environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"))
        if self.fail_next:
            return Response(status=self.fail_next.pop(0))(environ, start_response)
        refused = self.refuses.get("*", self.refuses.get(environ["REQUEST_METHOD"]))
        if refused is not None:
            return Response(self.answer, status=refused)(environ, start_response)
        answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer
