"""Emulator of S3 (moto) on a free port of loopback, which counts requests and bytes.

Prints its port, and serves until its standard input ends. `/counts` on the port returns the counts since the last time
that they were asked for, as JSON: the requests for segments and shards by method, and the bytes that were read from
these objects (`bytes_out`) and sent to them (`bytes_in`). Server-side copies are requests without such bytes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_SHARD = re.compile(r"/segments/|/data/part-")


class _Counted:
    """WSGI application that counts what it passes on."""

    def __init__(self, application: Any):
        self._application = application
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/counts":
            with self._lock:
                counts, self._counts = self._counts, Counter()
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counts).encode()]
        counted = _SHARD.search(path) is not None
        if counted:
            with self._lock:
                self._counts[environ["REQUEST_METHOD"]] += 1
                self._counts["bytes_in"] += int(environ.get("CONTENT_LENGTH") or 0)

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if counted and environ["REQUEST_METHOD"] == "GET":
                with self._lock:
                    length = next((value for name, value in headers if name.lower() == "content-length"), "0")
                    self._counts["bytes_out"] += int(length)
            return start_response(status, headers, *rest)

        return self._application(environ, start)


def main() -> None:
    """Serves until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = make_server("127.0.0.1", 0, _Counted(DomainDispatcherApplication(create_backend_app)), threaded=True)
    print(server.port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
