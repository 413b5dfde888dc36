"""Mistakes that are named for what they are: another label, an encrypted file; others are rows of test_bad_input."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms.tfrecord.framing import frame

from tests.written_logs import write_log

ROWS = 500


@pytest.fixture(scope="module")
def two_labels(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    path = tmp_path_factory.mktemp("log") / "two.csv"
    return write_csv(path, [f"{i},{i % 5},{i % 3}" for i in range(ROWS)], "f,y,z")


def test_apply_names_both_labels(job, invoke, outputs, two_labels):
    invoke(job("fit", input=two_labels)).ok()
    assert json.loads((outputs / "mechanism.json").read_text())["prior"]["label"] == "y"
    invoke(["audit", str(outputs / "mechanism.json")]).ok()

    outcome = invoke(job("apply", input=two_labels, label="z")).ok()
    (line,) = [line for line in outcome.err.splitlines() if "--mechanism_file was fitted to y" in line]
    assert line.startswith("labeldp: warning: --label is z, but --mechanism_file was fitted to y: epsilon holds")
    applied = json.loads((outputs / "released" / "mechanism.json").read_text())
    assert applied["prior"]["label"] == "y"
    invoke(["audit", str(outputs / "released"), "--data"]).ok()

    same = invoke(job("apply", input=two_labels, output=outputs / "same")).ok()
    assert "was fitted to" not in same.err


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_parquet_file(job, invoke, tmp_path, plaintext_footer):
    encryption: Any = pytest.importorskip("pyarrow.parquet.encryption")

    class Plain(encryption.KmsClient):
        """Keys that are wrapped by encoding them."""

        def wrap_key(self, key_bytes, master_key_identifier):
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return base64.b64decode(wrapped_key)

    keys = encryption.EncryptionConfiguration(
        footer_key="k", column_keys={"k": ["f"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(lambda configuration: Plain())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), keys)
    table = pa.table({"f": [1.5] * ROWS, "y": [1] * ROWS})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    error = invoke(job(input=tmp_path / "a.parquet", input_format="parquet")).error
    assert f"{tmp_path}/a.parquet: the Parquet file is encrypted, and labeldp takes no keys" in error


def test_a_tfrecord_that_begins_like_gzip(read_first_frame):
    """559,903 bytes: the length of the first record begins with the bytes of gzip."""
    assert read_first_frame(0x088B1F) == 0x088B1F


@pytest.fixture
def read_first_frame(tmp_path: Path) -> Any:
    from labeldp.transforms.readers.tfrecord_reader import _read_frames

    def read(size: int) -> int:
        path = tmp_path / "a.tfrecord"
        path.write_bytes(frame([b"x" * size]))
        with path.open("rb") as file:
            (frames,) = _read_frames(file, str(path), None)
        return len(frames.records()[0])

    return read


def test_no_message_tells_which_tfrecords_lack_labels(job, invoke, tmp_path):
    """If the first records of a file have no label, what is printed is that of a log with the public one."""
    said, path = [], tmp_path / "log.tfrecord"
    flags = {"input": path, "input_format": "tfrecord", "output_format": "tfrecord", "label": "weeks"}
    # In the order of their names the label is in the middle: its place in a record must not depend on it.
    for weeks in (pa.array([0.0] * ROWS), pa.nulls(ROWS, pa.float64())):
        write_log(path, {"age": np.arange(ROWS) % 7, "weeks": weeks, "x": np.arange(ROWS) / 8})
        # The warning about the ids names all columns.
        outcome = invoke([*job(**flags, missing_label=0, id_column="wekes"), "--dry_run"])
        said.append((outcome.code, outcome.out, outcome.err))
    assert said[0] == said[1]
    assert "there is no column 'wekes' in the first records" in said[0][2]
    assert "did you mean weeks?" in said[0][2]
    assert "there is no column" not in invoke(job(**flags, missing_label=0, center="none")).ok().err
