"""Emulators of S3 (moto) and Google Cloud Storage (gcp-storage-emulator) in this process, on free ports of loopback."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pytest

boto3 = pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("google.cloud.storage", reason="the extra gcp is not installed")

BUCKET = "log"
ENFORCED = threading.Event()
"""Set while the emulator of Google Cloud Storage checks generations, as the real one does."""


@dataclass(frozen=True)
class Emulator:
    """A store.

    Attributes:
      scheme: s3 or gs.
      variables: Environment with which clients find it.
    """

    scheme: str
    variables: dict[str, str]

    def url(self, name: str) -> str:
        """URL of an object of the tests' bucket."""
        return f"{self.scheme}://{BUCKET}/{name}"

    def put(self, name: str, content: bytes) -> str:
        """Writes an object through the code under test; returns its URL."""
        from labeldp.transforms.io.filesystems import store_of

        store_of(self.url(name)).write(self.url(name), content)
        return self.url(name)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """The objects below a prefix, by the rest of their names."""
        from labeldp.transforms.io.filesystems import store_of

        url = self.url(prefix)
        store, found = store_of(url), {}
        for info in store.list(url):
            content = store.read(info.path)
            assert content is not None
            found[info.path[len(url) :]] = content[0]
        return found


@pytest.fixture(scope="session")
def s3_server() -> Iterator[dict[str, str]]:
    """moto's server. It handles one write at a time, so that conditions are atomic, as S3 promises.

    Parts of an upload that was given up are refused, as S3 does. It lists the folders of all its services in each
    request; here, once.
    """
    from moto import backends
    from moto.s3.exceptions import NoSuchUpload
    from moto.s3.models import s3_backends
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    lock, put = threading.Lock(), S3Response.put_object

    class Uploads(dict[str, Any]):
        def __missing__(self, upload: str) -> Any:
            raise NoSuchUpload(upload)

    def put_alone(self: Any) -> Any:
        with lock:
            return put(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(S3Response, "put_object", put_alone)
    modules = list(backends.list_of_moto_modules())
    patch.setattr(backends, "list_of_moto_modules", lambda: iter(modules))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
    bucket: Any = s3_backends["123456789012"]["aws"].buckets[BUCKET]
    bucket.multiparts = Uploads()
    yield variables
    server.stop()
    patch.undo()


@pytest.fixture(scope="session")
def google_server() -> Iterator[dict[str, str]]:
    """gcp-storage-emulator, which handles one request at a time. It ignores generations; this adds their check."""
    from gcp_storage_emulator import server
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects
    from gcp_storage_emulator.storage import Storage

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)

    def refused(req: Any, res: Any, storage: Any, name: str) -> bool:
        wanted = req.query.get("ifGenerationMatch")
        if not wanted or not ENFORCED.is_set():
            return False
        try:
            present = storage.get_file_obj(req.params.get("dest_bucket_name") or req.params["bucket_name"], name)
        except NotFound:
            present = {"generation": "0"}
        if wanted[0] == present["generation"]:
            return False
        res.status = HTTPStatus.PRECONDITION_FAILED
        res.json({"error": {"code": 412, "message": "At least one pre-condition did not hold."}})
        return True

    def insert(req: Any, res: Any, storage: Any) -> None:
        body = req.data if isinstance(req.data, dict) else {}
        if not refused(req, res, storage, req.query.get("name", [body.get("meta", body).get("name")])[0]):
            objects.insert(req, res, storage)

    def compose(req: Any, res: Any, storage: Any) -> None:
        # The real one takes at most 32 objects.
        assert len(req.data["sourceObjects"]) <= 32
        if not refused(req, res, storage, req.params["object_id"]):
            objects.compose(req, res, storage)

    def rewrite(req: Any, res: Any, storage: Any) -> None:
        if not req.data and int(req.get_header("Content-Length", 0)):
            # A client was killed before it had sent the metadata.
            res.status = HTTPStatus.BAD_REQUEST
            return
        bucket, name = req.params["dest_bucket_name"], req.params["dest_object_id"]
        if not refused(req, res, storage, name):
            objects.rewrite(req, res, storage)
            if req.data and res.status == HTTPStatus.OK:
                # Metadata of the request replace those of the source.
                objects._patch(storage, bucket, name, {"metadata": req.data.get("metadata", {})})

    def delete(req: Any, res: Any, storage: Any) -> None:
        if not refused(req, res, storage, req.params["object_id"]):
            objects.delete(req, res, storage)

    checked = (insert, compose, rewrite, delete)
    with_conditions = {each: new for new in checked for each in [getattr(objects, new.__name__)]}
    routes: Any = server.HANDLERS
    for _, handlers in routes:
        for method in ("POST", "DELETE"):
            handlers[method] = with_conditions.get(handlers.get(method), handlers.get(method))
    patch = pytest.MonkeyPatch()
    # After each change it would encode the metadata of all objects, with those that it keeps for a week after deletion.
    patch.setattr(Storage, "_write_config_to_file", lambda _: None)
    patch.setattr(Storage, "delete_file", Storage._hard_delete_file)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found: Any = server.create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    found._api.daemon = True
    found.start()
    # Of more than five clients at once, some would connect a second later, when the kernel tries again.
    found._api._httpd.socket.listen(128)
    yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}
    found.stop()
    patch.undo()


@pytest.fixture
def emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator | None]:
    """An empty store: that of the parameter, `s3` or `gs`, which the environment names; None for `disk`."""
    from apache_beam.io.filesystems import FileSystems

    scheme = request.param
    if scheme == "disk":
        yield None
        return
    variables = request.getfixturevalue({"s3": "s3_server", "gs": "google_server"}[scheme])
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    # Options that an earlier command of this process has left.
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    ENFORCED.set()
    found = Emulator(scheme, variables)
    yield found
    from labeldp.transforms.io.filesystems import store_of

    store = store_of(found.url(""))
    store.delete([info.path for info in store.list(found.url(""))])


@pytest.fixture
def unenforced() -> Iterator[None]:
    """The emulator of Google Cloud Storage ignores generations, as it does by itself."""
    ENFORCED.clear()
    yield
    ENFORCED.set()
