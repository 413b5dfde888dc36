"""`labeldp audit --data` of whole releases: correct ones pass, each planted defect fails."""

import gzip
import json
import re
import shutil
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main
from labeldp.transforms.shards.shard_formats import compressed_file

from tests.audit.written_files import write_document, write_shard

RECORDS = 20_000
FORMATS = {
    "tfrecord": {"output_format": "tfrecord"},
    "gzip": {"output_format": "tfrecord", "compression": "gzip"},
    "parquet": {"output_format": "parquet"},
}
FILES = "files        every byte of the Parquet shards is the one that pyarrow writes for their records\n"
# How a tf.Example ends its key and begins its float.
KEY = re.compile(rb"\x01y\x12\x08\x12\x06\x0a\x04(....)", re.DOTALL)


@pytest.fixture(scope="session")
def log(tmp_path_factory, write_csv):
    """20,000 records, labels 0 to 5 in falling numbers, some outside the domain 0 to 4."""
    labels = [0] * 12 + [1] * 4 + [2] * 2 + [3, 5]
    rows = [f"{i},t{i % 13},{labels[i % 20]}" for i in range(RECORDS)]
    return write_csv(tmp_path_factory.mktemp("audit") / "log.csv", rows, "f,t,y")


@pytest.fixture(scope="session")
def flags(log, key_file):
    return {
        "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 4, "label_step": 1,
        "epsilon": 1, "mechanism": "rr", "prior_epsilon": 0.016, "noise_key_file": key_file, "num_shards": 2,
    }  # fmt: skip


@pytest.fixture(scope="session")
def released(log, flags, invoke, command):
    """Releases of the log by format. The labels of its mechanism, randomized response, are outputs too."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    for name, more in FORMATS.items():
        invoke(command("privatize", flags | {"output": log.parent / name} | more)).ok()
    return {name: log.parent / name for name in FORMATS}


@pytest.fixture(params=FORMATS)
def copied(request, released, tmp_path):
    """A copy of each release, which a test may damage."""
    return shutil.copytree(released[request.param], tmp_path / "released")


def problems(folder):
    return audit_path(str(folder), data=True).problems


def shards(folder):
    return sorted((folder / "data").iterdir())


def masked(text):
    import google_crc32c

    crc = google_crc32c.value(text)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def read_records(path):
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    records, place = [], 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        records.append(content[place + 12 : place + 12 + length])
        place += length + 16
    return records


def write_records(path, records):
    lengths = [struct.pack("<Q", len(record)) for record in records]
    parts = [length + masked(length) + record + masked(record) for length, record in zip(lengths, records, strict=True)]
    with path.open("wb") as file, compressed_file(file) if path.suffix == ".gz" else file as written:
        written.write(b"".join(parts))


def change_labels(folder, change):
    """Replaces the labels of every shard by change(array of the shard's labels), which may be shorter."""
    for path in shards(folder):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            labels = change(table["y"].to_numpy())
            table = table.slice(0, len(labels))
            place = table.schema.get_field_index("y")
            write_shard(table.set_column(place, "y", pa.array(labels, pa.float64())), path)
            continue
        records = read_records(path)
        labels = change(
            np.array([struct.unpack("<f", match[1])[0] for record in records if (match := KEY.search(record))])
        )
        write_records(
            path,
            [
                KEY.sub(lambda found, label=label: found[0][:-4] + struct.pack("<f", label), record)
                for record, label in zip(records[: len(labels)], labels, strict=True)
            ],
        )


def test_a_correct_release_passes(released, capsys):
    for folder in released.values():
        assert main(["audit", str(folder), "--data"]) == 0
        *_, data, parts, distribution, verdict = capsys.readouterr().out.replace(FILES, "").splitlines()
        assert data.startswith("data         20000 records in 2 shards: every label is an output")
        assert re.fullmatch(r"parts        \d+ counts of outputs .*: evidence 10\^-?[0-4]\.\d, bound 10\^6\.3", parts)
        assert distribution.startswith("distribution 8 sets of outputs agree with the channel and the noised histogram")
        assert distribution.endswith("a correct release fails this with a probability of at most 1e-06")
        assert verdict == "PASS"
        assert audit_path(str(folder)).data_lines == ()


def test_the_helper_changes_labels_only(copied):
    change_labels(copied, lambda labels: labels)
    assert problems(copied) == ()


@pytest.mark.parametrize("value", [0.5, 5.0, -0.0, float(np.nextafter(np.float32(1), np.float32(2))), np.nan, np.inf])
def test_a_label_that_is_no_output(copied, value):
    def change(labels):
        labels = labels.copy()
        # The sign of zero carries a bit, too.
        labels[np.flatnonzero(labels == 0)[3]] = value
        return labels

    change_labels(copied, change)
    found = problems(copied)
    assert len(found) == 2
    assert re.fullmatch(
        r"data/part-00000-of-00002\.\S+ has 1 labels that are no output of the mechanism, first in record \d+", found[0]
    )


def test_a_dropped_record(copied):
    change_labels(copied, lambda labels: labels[:-1])
    assert [line.partition(" holds ")[2] for line in problems(copied)] == [
        f"{count - 1} records, but release.shards says {count}"
        for count in json.loads((copied / "release.json").read_text())["shards"].values()
    ]


def test_a_truncated_shard(copied):
    path = shards(copied)[1]
    path.write_bytes(path.read_bytes()[:-7])
    [problem] = problems(copied)
    assert problem.startswith(f"data/{path.name} ")
    assert "is truncated" in problem


def test_a_flipped_bit(released, tmp_path):
    folder = shutil.copytree(released["tfrecord"], tmp_path / "released")
    path = shards(folder)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of the last checksum
    path.write_bytes(content)
    [problem] = problems(folder)
    assert f"data/{path.name} has a wrong checksum of the record at byte " in problem


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda labels: np.zeros(len(labels)), id="one label for all"),
        pytest.param(lambda labels: np.random.default_rng(1).integers(0, 5, len(labels)), id="another mechanism"),
        pytest.param(lambda labels: 4 - labels, id="mirrored"),
        pytest.param(None, id="raw labels"),
    ],
)
def test_another_distribution_over_the_same_outputs(copied, log, read_csv, change):
    if change is None:
        raw = np.minimum(np.array(read_csv(log)["y"], float), 4)
        parts = iter(
            np.split(raw, [json.loads((copied / "release.json").read_text())["shards"][shards(copied)[0].name]])
        )
        change_labels(copied, lambda labels: next(parts))
    else:
        change_labels(copied, change)
    [problem] = problems(copied)
    assert problem.startswith("the labels were not drawn from the channel for the noised histogram: ")
    assert "with a probability of at most 1e-06" in problem


def test_a_hidden_label(released, tmp_path):
    folder = shutil.copytree(released["tfrecord"], tmp_path / "released")
    path = shards(folder)[0]
    records = read_records(path)
    records[5] += b"\x15" + struct.pack("<f", 3.0)
    write_records(path, records)
    assert problems(folder) == (f"data/{path.name} record 5 has bytes that readers of tf.Examples do not see",)


@pytest.mark.parametrize(
    "column", [None, ["0"] * 3, [0, 1, 2], [0.0, None, 1.0], [[0.0], [], [1.0]], [[0.0], None, [1.0]]]
)
def test_a_parquet_column_without_labels(released, tmp_path, column):
    folder = shutil.copytree(released["parquet"], tmp_path / "released")
    path = shards(folder)[1]
    pq.write_table(pa.table({"f": [1.0, 2.0, 3.0]} if column is None else {"y": column}), path)
    [problem] = problems(folder)
    assert problem.startswith(f"data/{path.name} ")
    pq.write_table(pa.table({"named": [1.0]}), path)
    for content in (b"no Parquet", path.read_bytes().replace(b"named", b"\x80amed")):
        path.write_bytes(content)
        [problem] = problems(folder)
        assert problem.startswith(f"data/{path.name} cannot be read as Parquet: ")


def test_lists_of_one_float_are_compared_as_float32(released, tmp_path):
    folder = shutil.copytree(released["parquet"], tmp_path / "released")
    for path in shards(folder):
        labels = pq.read_table(path)["y"].to_numpy().astype(np.float32)
        column = pa.LargeListArray.from_arrays(pa.array(np.arange(len(labels) + 1)), pa.array(labels))
        write_shard(pa.table({"y": column}), path)
    release = json.loads((folder / "release.json").read_text())
    release["output"]["columns"] = [{"name": "y", "type": str(column.type)}]
    write_document(folder / "release.json", release)
    assert problems(folder) == ()


def test_unbiased_outputs_with_randomized_rounding_and_apply(log, flags, invoke, command, tmp_path, capsys):
    """Outputs that are no float32, and the two halves of a job: `apply` to the log of `fit`, and to another one."""
    own = flags | {"mechanism": "unbiased", "label_step": 2}
    fitted = tmp_path / "m.json"
    invoke(
        command("fit", {key: value for key, value in own.items() if key != "num_shards"} | {"mechanism_file": fitted})
    ).ok()
    other = tmp_path / "other.csv"
    other.write_text("".join(log.read_text().splitlines(keepends=True)[:5000]))
    keys = ("input", "input_format", "label", "noise_key_file", "num_shards")
    for name, source in (("same", log), ("other", other)):
        flags_of_apply = {key: own[key] for key in keys} | {"mechanism_file": fitted, "input": source}
        invoke(command("apply", flags_of_apply | {"output": tmp_path / name})).ok()
        assert main(["audit", str(tmp_path / name), "--data"]) == 0
        distribution = capsys.readouterr().out.splitlines()[-2]
        assert ("sets of outputs agree" in distribution) == (name == "same")
    assert distribution.startswith("distribution not checked: the prior was counted from other records")


def test_a_public_prior_says_nothing_about_the_records(released, tmp_path):
    folder = shutil.copytree(released["parquet"], tmp_path / "released")
    documents = {name: json.loads((folder / name).read_text()) for name in ("mechanism.json", "release.json")}
    for member in ("release", "counts", "records"):
        del documents["mechanism.json"]["prior"][member]
    documents["mechanism.json"]["prior"]["epsilon"] = documents["release.json"]["prior_epsilon"] = 0.0
    # Without noise in the prior, its ends are no estimates.
    warnings = documents["release.json"]["warnings"]
    documents["release.json"]["warnings"] = [name for name in warnings if not name.endswith("_end")]
    for name, document in documents.items():
        write_document(folder / name, document)
    audit = audit_path(str(folder), data=True)
    assert audit.problems == ()
    assert audit.data_lines[-1].startswith("distribution not checked: the prior is public")
