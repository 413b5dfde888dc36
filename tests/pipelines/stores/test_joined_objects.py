"""Shards that a store joins from segments: the bytes of a local run, whole or not at all, without a download."""

import functools
import os
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from labeldp.transforms import LabelledBatch, WriteParquet, WriteTFRecords
from labeldp.transforms.errors import StageError, StoreConflict, StoreError
from labeldp.transforms.io.filesystems import join_files, store_of
from labeldp.transforms.shards.shard_ranges import CountRows

pytestmark = pytest.mark.xdist_group("stores")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
MIB = 1 << 20


@pytest.fixture
def segments(emulator: Any) -> Callable[..., tuple[list[tuple[str, int]], bytes]]:
    """(sizes) -> objects of random bytes with their sizes, and all their bytes together."""

    def made(*sizes: int) -> tuple[list[tuple[str, int]], bytes]:
        contents = [os.urandom(size) for size in sizes]
        found = [(emulator.put(f"work/{place:03d}", each), len(each)) for place, each in enumerate(contents)]
        return found, b"".join(contents)

    return made


@pytest.fixture
def no_uploads(emulator: Any) -> Callable[[], bool]:
    """() -> whether no multipart upload of S3 is unfinished."""
    boto3 = pytest.importorskip("boto3")

    def none() -> bool:
        return emulator.scheme != "s3" or "Uploads" not in boto3.client("s3").list_multipart_uploads(Bucket="log")

    return none


@STORES
@pytest.mark.parametrize(
    "sizes",
    [
        (), (0,), (1,), (2 * MIB,), (6 * MIB,), (6 * MIB, 3), (6 * MIB, 0, 5 * MIB, MIB), (3, 6 * MIB, 9, 6 * MIB),
        (100,) * 20,
    ],
    ids=lambda sizes: f"{len(sizes)} of {sum(sizes)}",
)  # fmt: skip
def test_an_object_has_the_bytes_of_others_in_order(
    emulator: Any, segments: Any, no_uploads: Any, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """Google's store joins 32 objects in a request, here 4: more are joined in several steps."""
    monkeypatch.setattr("labeldp.transforms.stores.google_store._COMPOSED_AT_ONCE", 4)
    sources, content = segments(*sizes)
    url = emulator.url("out/part")
    join_files(sources, url, "run")
    join_files(sources, url, "run")
    with pytest.raises(StageError, match="another run has written it"):
        join_files(sources, url, "another")
    assert emulator.objects("out/") == {"part": content}
    assert len(emulator.objects("work/")) == len(sizes)
    assert no_uploads()


@S3
@pytest.mark.parametrize("failing", ["upload_part_copy", "complete_multipart_upload"])
def test_an_object_that_cannot_be_joined_does_not_appear(
    emulator: Any, segments: Any, no_uploads: Any, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    from labeldp.transforms.stores.s3_store import S3Store

    sources, _ = segments(6 * MIB, 6 * MIB)
    client, calls = S3Store._client.fget(store_of(sources[0][0])), []  # type: ignore[attr-defined]
    original = getattr(client, failing)

    def fail(**arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2 or failing == "complete_multipart_upload":
            raise StoreError("access denied")
        return original(**arguments)

    with monkeypatch.context() as patched:
        patched.setattr(client, failing, fail)
        with pytest.raises(StoreError, match="access denied"):
            join_files(sources, emulator.url("out/part"), "run")
    assert calls
    assert emulator.objects("out/") == {}
    assert no_uploads()


@S3
def test_a_source_that_lost_its_end_is_noticed(emulator: Any, segments: Any) -> None:
    """moto copies what there is of a range, where S3 refuses it; small sources are read."""
    ((path, size),), _ = segments(1_000)
    with pytest.raises(StoreError, match="ended early"):
        store_of(path).join([(path, size + 1)], emulator.url("out/part"), "run")
    assert emulator.objects("out/") == {}


@STORES
def test_a_joined_object_is_not_replaced(emulator: Any, segments: Any) -> None:
    sources, _ = segments(2 * MIB, 5)
    url = emulator.put("out/part", b"others")
    with pytest.raises(StoreConflict):
        store_of(url).join(sources, url, "run")
    assert emulator.objects("out/") == {"part": b"others"}


def batches(files: int, rows: int) -> list[LabelledBatch]:
    generator = np.random.default_rng(1)
    columns = [{"x": [str(row) for row in range(rows)], "y": generator.random(rows)} for _ in range(files)]
    return [
        LabelledBatch.whole(f"/logs/{file}", 0, pa.RecordBatch.from_pydict(each)) for file, each in enumerate(columns)
    ]


@pytest.fixture(scope="module")
def local_shards(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, bytes]]:
    """Function (transform, compression, files, rows, shards) -> the shards in a local folder, by name."""

    @functools.cache
    def written(*case: Any) -> dict[str, bytes]:
        folder = tmp_path_factory.mktemp("local")
        write_shards(str(folder), *case)
        return {path.name: path.read_bytes() for path in (folder / "data").iterdir()}

    return written


def write_shards(folder: str, transform: Any, compression: str, files: int, rows: int, shards: int) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read: Any = pipeline | beam.Create(batches(files, rows))
        _ = read | transform(f"{folder}/data", f"{folder}/temp", shards, compression, rows=read | CountRows())


@STORES
@pytest.mark.parametrize(
    ("transform", "compression"), [(WriteTFRecords, "none"), (WriteTFRecords, "gzip"), (WriteParquet, "none")]
)
@pytest.mark.parametrize(
    ("files", "rows", "shards"),
    [(2, 300, 2), (3, 100, 1), (1, 3, 8), (0, 0, 3)],
    ids=["a segment each", "three segments of one shard", "empty shards", "only empty shards"],
)
def test_shards_on_a_store_have_the_bytes_of_local_ones(
    emulator: Any, local_shards: Any, transform: Any, compression: str, files: int, rows: int, shards: int
) -> None:
    case = transform, compression, files, rows, shards
    write_shards(emulator.url("out"), *case)
    expected = local_shards(*case)
    assert len(expected) == shards
    assert emulator.objects("out/data/") == expected


@STORES
def test_shards_without_records(emulator: Any, on_store: Any, invoke: Any, tfrecord_file: bytes) -> None:
    """A release of three records in five shards: every shard is there, and the audit counts the records."""
    from labeldp.transforms.tfrecord.example_encoder import encode_frames

    few = pa.RecordBatch.from_pydict({"f": [1, 2, 3], "y": [0.0, 1.0, 2.0]})
    emulator.put("few/a.tfrecord", bytes(encode_frames(few)))
    flags = {"input_format": "tfrecord", "output_format": "tfrecord", "num_shards": 5}
    invoke(on_store(input=emulator.url("few/*.tfrecord"), **flags)).ok()
    shards = emulator.objects("out/released/data/")
    assert list(shards) == [f"part-{i:05d}-of-00005.tfrecord" for i in range(5)]
    assert sum(map(len, shards.values())) > 0
    assert b"" in shards.values()
    audited = invoke(["audit", emulator.url("out/released"), "--data"]).ok()
    assert "3 records in 5 shards" in audited.out
    assert audited.out.splitlines()[-1] == "PASS"
