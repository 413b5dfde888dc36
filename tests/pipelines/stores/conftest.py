"""Jobs all of whose paths are on an emulated store."""

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store_emulators import Emulator, emulator, google_server, s3_server, unenforced

__all__ = ["emulator", "google_server", "s3_server", "unenforced"]


def records(rows: int) -> pa.Table:
    """Records: f is the row number, y is in 0..4."""
    return pa.table({"f": pa.array(range(rows), pa.int64()), "y": pa.array([float(i % 5) for i in range(rows)])})


def parquet_file(rows: int) -> bytes:
    """`records` as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(records(rows), file)
    return file.getvalue()


@pytest.fixture(scope="session")
def tfrecord_file() -> bytes:
    """600 records as a TFRecord file."""
    from labeldp.transforms.tfrecord.example_encoder import encode_frames

    return bytes(encode_frames(records(600).combine_chunks().to_batches()[0]))


@pytest.fixture
def on_store(emulator: Emulator, secret: bytes, command: Any) -> Callable[..., list[str]]:
    """Function (command="privatize", flag=value, ...) -> the arguments of a valid job, all of whose paths are URLs.

    It reads in/*.parquet and writes Parquet to out/released or out/m.json; key and ledger are beside them.
    """
    emulator.put("key/noise.key", secret)
    emulator.put("in/a.parquet", parquet_file(600))

    def arguments(name: str = "privatize", **flags: Any) -> list[str]:
        standard: dict[str, Any] = {
            "input": emulator.url("in/*.parquet"),
            "input_format": "parquet",
            "label": "y",
            "noise_key_file": emulator.url("key/noise.key"),
        }
        if name != "apply":
            standard |= {"label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1}
        if name != "privatize":
            standard["mechanism_file"] = emulator.url("out/m.json")
        if name != "fit":
            standard |= {"output": emulator.url("out/released"), "output_format": "parquet", "num_shards": 2}
        return command(name, standard | flags)

    return arguments


@pytest.fixture
def spent_on() -> Callable[[bytes], float]:
    """Function (content of a ledger) -> the epsilon of its distinct releases."""

    def total(content: bytes) -> float:
        charges = [charge for line in content.decode().splitlines() for charge in json.loads(line)["charges"]]
        return sum({charge["release"]: charge["epsilon"] for charge in charges}.values())

    return total
