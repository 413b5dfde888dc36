"""Emulators of S3 (moto) and Google Cloud Storage (gcp-storage-emulator) that count requests and bytes.

`store_server.py s3|gs BUCKET` makes the bucket, prints the free port of loopback that it listens on, and serves until
its standard input ends. `/counts` on the port returns the counts since the last time that they were asked for, as JSON:
`requests` for segments and shards, the bytes that were read from these objects (`bytes_out`), and the bytes of the
bodies of the requests (`bytes_in`), which have no content where the store itself joins or copies objects. Listings and
deletions of several objects at once are not counted.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import Router
from gcp_storage_emulator.storage import Storage
from werkzeug.datastructures import EnvironHeaders
from werkzeug.serving import make_server
from werkzeug.test import Client

_SHARD = re.compile(r"/segments/|/data/part-")
_NAME = re.compile(rb'"name": *"([^"]*)"')
_UPLOADED = "benchmark.uploaded"


class _Counted:
    """WSGI application that counts what it passes on."""

    def __init__(self, application: Any):
        self._application = application
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, read = environ["PATH_INFO"], 0
        if path == "/counts":
            with self._lock:
                counts, self._counts = self._counts, Counter()
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counts).encode()]

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            nonlocal read
            # Google's store describes an object by a GET, too: under /storage, while contents are under /download.
            if environ["REQUEST_METHOD"] == "GET" and not path.startswith("/storage/"):
                read = int(next((value for name, value in headers if name.lower() == "content-length"), 0))
            return start_response(status, headers, *rest)

        answer = self._application(environ, start)
        if _SHARD.search(environ.get(_UPLOADED, path)):
            sent = int(environ.get("CONTENT_LENGTH") or 0)
            with self._lock:
                self._counts.update(requests=1, bytes_in=sent, bytes_out=read)
        return answer


def _s3(bucket: str) -> Any:
    """Makes moto's WSGI application, with a bucket."""
    # Takes a second, which the other emulator need not wait for.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    application = DomainDispatcherApplication(create_backend_app)
    Client(application).put(f"/{bucket}")
    return application


class _Refused(Exception):
    """The condition of a request on the generation of an object does not hold."""


class _GoogleStorage(Storage):
    """Objects of gcp-storage-emulator, in memory. Checks generations, without which labeldp refuses the store.

    Attributes:
      wanted: Generation that an object must have to be written, 0 if it must not exist, None for any.
    """

    def __init__(self, bucket: str):
        super().__init__(use_memory_fs=True)
        self.wanted: str | None = None
        create_bucket(bucket, self)

    def create_file(
        self, bucket_name: str, file_name: str, content: Any, file_obj: Any, file_id: str | None = None
    ) -> None:
        present = self.objects.get(bucket_name, {}).get(file_name, {"generation": "0"})
        if self.wanted not in (None, present["generation"]):
            raise _Refused
        super().create_file(bucket_name, file_name, content, file_obj, file_id)

    def delete_file(self, bucket_name: str, file_name: str) -> None:
        """Deletes an object now, not after a week."""
        self._hard_delete_file(bucket_name, file_name)

    def _write_config_to_file(self) -> None:
        """Does nothing: the emulator would encode the metadata of all objects after each change."""


class _Google:
    """WSGI application of gcp-storage-emulator, whose own server has one thread and no place to count."""

    def __init__(self, bucket: str):
        self._storage = _GoogleStorage(bucket)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        query, content = parse_qs(environ["QUERY_STRING"]), io.BytesIO()
        status, headers = "412 Precondition Failed", []

        def send_status(code: int, reason: str) -> None:
            nonlocal status
            status = f"{code} {reason}"

        # What the emulator uses of an http.server.BaseHTTPRequestHandler.
        exchange: Any = SimpleNamespace(
            path=environ["RAW_URI"],
            headers=EnvironHeaders(environ),
            rfile=io.BytesIO(body),
            wfile=content,
            server=SimpleNamespace(server_address=None),
            storage=self._storage,
            send_response=send_status,
            send_header=lambda name, value: headers.append((name, value)),
            end_headers=lambda: None,
        )
        with self._lock:
            if "uploadType" in query:
                environ[_UPLOADED] = self._uploaded(query, body)
            self._storage.wanted = query.get("ifGenerationMatch", [None])[0]
            with contextlib.suppress(_Refused):
                Router(exchange).handle(environ["REQUEST_METHOD"])
        start_response(status, headers)
        return [content.getvalue()]

    def _uploaded(self, query: dict[str, list[str]], body: bytes) -> str:
        """Name of an object that is uploaded: the first request has it at the start of its body."""
        if "upload_id" in query:
            return self._storage.get_resumable_file_obj(query["upload_id"][0])["name"]
        name = _NAME.search(body)
        return "" if name is None else name[1].decode()


def main() -> None:
    """Serves until standard input ends."""
    scheme, bucket = sys.argv[1:]
    logging.disable()
    application = _Counted({"s3": _s3, "gs": _Google}[scheme](bucket))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
