"""A small server that speaks what the remote tier uses of Amazon S3: objects by path, ranges, multipart uploads, lists.

It keeps everything in memory and checks no signature. `fail_next` makes the next requests answer with an error status.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 1000  # keys of one list answer, as S3


class S3Server:
    """A context manager; `endpoint` is its address."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.fail_next: list[int] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


def _handler(server: S3Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Tests look at `requests`."""

        def _begin(self) -> tuple[str, dict[str, list[str]], bytes]:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            key = unquote(parts.path).lstrip("/").partition("/")[2]
            with server.lock:
                server.requests.append((self.command, self.path))
            return key, parse_qs(parts.query, keep_blank_values=True), body

        def _answer(self, status: int, body: bytes = b"", /, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if "Content_Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _fails(self) -> bool:
            with server.lock:
                status = server.fail_next.pop(0) if server.fail_next else None
            if status is not None:
                self._answer(status, b"<Error><Code>Trouble</Code></Error>")
            return status is not None

        def _stored(self, key: str) -> bytes | None:
            found = server.objects.get(key)
            if found is None:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return found

        def do_PUT(self) -> None:
            key, query, body = self._begin()
            if self._fails():
                return
            with server.lock:
                if "uploadId" in query:
                    server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
                else:
                    server.objects[key] = body
            self._answer(200, ETag='"1"')

        def do_POST(self) -> None:
            key, query, body = self._begin()
            if self._fails():
                return
            with server.lock:
                if "delete" in query:
                    gone = re.findall(r"<Key>(.*?)</Key>", body.decode())
                    for one in gone:
                        server.objects.pop(unescape(one), None)
                    said = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in gone)
                    self._answer(200, f"<DeleteResult>{said}</DeleteResult>".encode())
                    return
                if "uploads" in query:
                    upload = f"u{len(server.uploads)}"
                    server.uploads[upload] = {}
                    said = f"<UploadId>{upload}</UploadId>"
                    self._answer(200, f"<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>".encode())
                    return
                if "uploadId" in query:
                    parts = server.uploads.pop(query["uploadId"][0])
                    server.objects[key] = b"".join(parts[number] for number in sorted(parts))
                    said = '<ETag>"1"</ETag>'
                    self._answer(200, f"<CompleteMultipartUploadResult>{said}</CompleteMultipartUploadResult>".encode())
                    return
            self._answer(400, body)

        def do_DELETE(self) -> None:
            key, query, _ = self._begin()
            if self._fails():
                return
            with server.lock:
                if "uploadId" in query:
                    server.uploads.pop(query["uploadId"][0], None)
                else:
                    server.objects.pop(key, None)
            self._answer(204)

        def do_HEAD(self) -> None:
            key, _, _ = self._begin()
            found = self._stored(key)
            if found is not None:
                self._answer(200, b"", ETag='"1"', Content_Length=str(len(found)), **LAST_MODIFIED)

        def do_GET(self) -> None:
            key, query, _ = self._begin()
            if self._fails():
                return
            if "list-type" in query:
                self._list(query)
                return
            found = self._stored(key)
            if found is None:
                return
            asked = self.headers.get("Range")
            if asked is None:
                self._answer(200, found, ETag='"1"', **LAST_MODIFIED)
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(found)), len(found) - 1)
            if start >= len(found):
                self._answer(416, Content_Range=f"bytes */{len(found)}")
                return
            told = f"bytes {start}-{end}/{len(found)}"
            self._answer(206, found[start : end + 1], ETag='"1"', Content_Range=told, **LAST_MODIFIED)

        def _list(self, query: dict[str, list[str]]) -> None:
            prefix = query.get("prefix", [""])[0]
            after = query.get("continuation-token", [""])[0]
            with server.lock:
                keys = sorted(key for key in server.objects if key.startswith(prefix) and key > after)
                page = [(key, len(server.objects[key])) for key in keys[:PAGE]]
            rows = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>1</ETag>"
                f"<LastModified>2026-11-21T12:00:00.000Z</LastModified></Contents>"
                for key, size in page
            )
            more = len(keys) > PAGE
            token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
            self._answer(
                200,
                f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
                f"{token}{rows}</ListBucketResult>".encode(),
            )

    return Handler


LAST_MODIFIED = {"Last_Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}
