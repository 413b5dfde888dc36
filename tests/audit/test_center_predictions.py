"""Linear centers under audit: predictions equal those of the job, and forged releases of every kind fail."""

import json
import shutil
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.audit_release import audit_path
from labeldp.audit.center_audit import center_sum_problems
from labeldp.audit.center_predictions import CenterPredictions
from labeldp.audit.center_replay import linear_replay_problems
from labeldp.audit.shard_columns import Column
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums

from tests.audit.written_files import write_document, write_shard

RECORDS = 1500
FORMATS = ("parquet", "csv to tfrecord", "tfrecord")


def fitted(seed, records, labels, epsilon):
    """A linear center, the columns of some records and their indices."""
    random = np.random.default_rng(seed)
    columns = {
        "a": random.normal(random.choice([0, 1e6]), 10.0, records),
        "b": np.where(random.random(records) < 0.1, np.nan, random.standard_cauchy(records)),
        "own": Categories(random.integers(-1, 3, records), ("x", "\udcff", "")),
        "hashed": Categories(random.integers(0, 9, records), tuple(f"v{i}" for i in range(9))),
    }
    columns["a"][:3] = 1e300, -np.inf, 3.4028235e38
    design = design_center({**columns, "a": np.clip(columns["a"], -1e7, 1e7)}, 1000, epsilon, 4)
    signal = np.clip((labels - 1) * (0.5 + random.normal(0, 0.3, records)), 0, labels - 1).astype(int)
    sums = moment_sums(design.map.rows(columns), signal, labels)
    sums = noised_sums(sums, design.map.norm, labels, design.epsilon, bytes(32)) if design.epsilon else ()
    center = LinearCenter.fit(design, labels, sums)
    return center, columns


def mechanism_of(center):
    """The part of a mechanism file that holds a center, and its domain."""
    domain = [float(label) for label in range(center.labels)]
    document = json.loads(json.dumps(center_document(center)))
    cells, distance = 1, 1
    while distance < center.labels:
        cells, distance = cells + 2, distance + max(distance // 4, 1)
    return {"center": {"column": "c", "domain": domain, "counts": [0] * cells, "linear": document}}


def as_columns(columns, dtype):
    found = {}
    for name, column in columns.items():
        rounded = np.full(len(column), dtype is np.float32)
        if isinstance(column, Categories):
            found[name] = Column(np.zeros(0), ~rounded & False, column.codes, column.values)
        else:
            with np.errstate(over="ignore"):
                found[name] = Column(column.astype(dtype).astype(float), rounded, np.zeros(0, int), [])
    return found


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30), st.sampled_from([0.3, 2.0]), st.sampled_from([5, 53, 4096]))
def test_predictions_are_those_of_the_job(seed, epsilon, labels):
    center, columns = fitted(seed, 400, labels, epsilon)
    mechanism = mechanism_of(center)
    assert list(center_sum_problems(mechanism)) == []
    assert list(linear_replay_problems(mechanism["center"]["linear"])) == []
    true = center.indices(columns).astype(float)
    exact = CenterPredictions(mechanism, float32=False)
    assert not exact.wrong(as_columns(columns, float), true).any()
    other = np.where(true > 0, true - 1, true + 1)
    assert exact.wrong(as_columns(columns, float), other).all()
    single = CenterPredictions(mechanism, float32=True)
    assert not single.wrong(as_columns(columns, np.float32), true).any()


def test_rounding_to_float32_hides_little():
    """Only a record with a feature close to a bound between two steps may have another center, the next one."""
    found = 0
    for seed in range(20):
        center, columns = fitted(seed, 400, 53, 0.3)
        columns["a"] = np.clip(columns["a"], -1e3, 1e3)
        true = center.indices(columns).astype(float)
        single = CenterPredictions(mechanism_of(center), float32=True)
        wrong = single.wrong(as_columns(columns, np.float32), np.where(true > 0, true - 1, true + 1))
        found += int((~wrong).sum())
    assert found < 8000 * 0.001


def test_features_that_were_rounded_to_float32_pass():
    """Some centers follow from the features only before they were rounded; the auditor allows exactly these."""
    rounded = 0
    for seed in range(20):
        center, columns = fitted(seed, 4000, 4096, 2.0)
        true, single = center.indices(columns).astype(float), CenterPredictions(mechanism_of(center), float32=True)
        assert not single.wrong(as_columns(columns, np.float32), true).any()
        rounded += single.rounded
    assert 0 < rounded < 80_000 * 0.001


def table():
    random = np.random.default_rng(5)
    a, b, c = (random.normal(50, 10, RECORDS) for _ in range(3))
    kind = random.integers(0, 3, RECORDS)
    labels = np.clip(np.rint((a + b - 100) / 4 + 2 * kind + 8 + random.normal(0, 1, RECORDS)), 0, 20)
    missing = [None if i % 20 == 3 else value for i, value in enumerate(c.tolist())]
    texts = [None if i % 31 == 4 else "uvw"[place] for i, place in enumerate(kind.tolist())]
    flags = random.random(RECORDS) < 0.5
    return pa.table({"a": a, "b": b, "c": missing, "kind": texts, "flag": flags, "code": kind, "y": labels})


@pytest.fixture(scope="module")
def released(tmp_path_factory, key_file, invoke, command):
    """Releases with a linear center, by format. `code` and `flag` were fitted as texts: they are categories."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    folder = tmp_path_factory.mktemp("linear")
    pq.write_table(table(), folder / "log.parquet")
    pa_csv.write_csv(table(), folder / "log.csv")
    (batch,) = table().to_batches()
    (folder / "log.tfrecord").write_bytes(bytes(frame(encode_examples(batch))))
    fit = {"label": "y", "label_min": 0, "label_max": 20, "label_step": 1, "epsilon": 1, "center": "linear"}
    for name in FORMATS:
        kind, file, key = name.split()[0], folder / f"{name}.json", {"noise_key_file": key_file}
        # Texts are categories. TFRecords have no booleans.
        flags = [str(int(flag) if kind == "tfrecord" else flag) for flag in table()["flag"].to_pylist()]
        texts = {"code": [*map(str, table()["code"].to_pylist())], "flag": flags}
        pq.write_table(pa.table(table().to_pydict() | texts), folder / "texts.parquet")
        source = {"input": folder / "texts.parquet", "input_format": "parquet", "mechanism_file": file}
        invoke(command("fit", fit | source | key)).ok()
        output = {"output": folder / name, "output_format": name.split()[-1], "label": "y", "mechanism_file": file}
        invoke(command("apply", output | key | {"input": folder / f"log.{kind}", "input_format": kind})).ok()
    return {name: folder / name for name in FORMATS}


@pytest.fixture(params=FORMATS)
def copied(request, released, tmp_path):
    return shutil.copytree(released[request.param], tmp_path / "released")


def problems(folder, data=True):
    return " | ".join(audit_path(str(folder), data=data).problems)


def test_correct_releases_pass(released):
    for folder in released.values():
        audit = audit_path(str(folder), data=True)
        assert audit.problems == ()
        assert audit.center_line.startswith("center       column 'y_center', linear in 6 features: ")
        assert audit.replay_line == "replayed     with the program's own code: coefficients from 7 sums"
        (line,) = (each for each in audit.data_lines if each.startswith("centers "))
        assert line.startswith("centers      every center is the one that the published map predicts")


def change_centers(folder, change):
    """Replaces the center of each record by change(labels, centers), and the label, so that it stays an output."""
    (path,) = (folder / "data").iterdir()
    if path.suffix == ".parquet":
        read = pq.read_table(path)
        labels, centers = read["y"].to_numpy(), read["y_center"].to_numpy()
        new = change(labels, centers)
        for name, values in (("y", labels - centers + new), ("y_center", new)):
            read = read.set_column(read.schema.get_field_index(name), name, pa.array(values))
        write_shard(read, path)
        return
    import google_crc32c

    example: Any = pytest.importorskip("tensorflow").train.Example

    content, place, records = path.read_bytes(), 0, []
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        records.append(example.FromString(content[place + 12 : place + 12 + length]))
        place += length + 16
    labels, centers = (
        np.array([each.features.feature[name].float_list.value[0] for each in records]) for name in ("y", "y_center")
    )
    new, parts = change(labels, centers), []
    for record, label, center in zip(records, labels - centers + new, new, strict=True):
        record.features.feature["y"].float_list.value[:] = [label]
        record.features.feature["y_center"].float_list.value[:] = [center]
        text = record.SerializeToString()
        for part in (struct.pack("<Q", len(text)), text):
            crc = google_crc32c.value(part)
            parts += [part, struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)]
    path.write_bytes(b"".join(parts))


def test_the_helper_changes_nothing_else(copied):
    change_centers(copied, lambda labels, centers: centers)
    assert problems(copied) == ""


def test_one_center_off_by_one_step(copied):
    def change(labels, centers):
        centers = centers.copy()
        centers[17] += 1 if centers[17] < 10 else -1
        return centers

    change_centers(copied, change)
    assert "has 1 centers that the linear center does not predict from the record's features, first in record 17" in (
        problems(copied)
    )


def test_a_center_column_of_true_labels(copied):
    change_centers(copied, lambda labels, centers: np.asarray(table()["y"]))
    assert "centers that the linear center does not predict" in problems(copied)


def changed_linear(folder, change):
    """Changes the linear center of both files."""
    for name in ("mechanism.json", "center.json"):
        document = json.loads((folder / name).read_text())
        change(document["center"]["linear"] if name == "mechanism.json" else document["linear"])
        write_document(folder / name, document)


@pytest.fixture
def one(released, tmp_path):
    return shutil.copytree(released["parquet"], tmp_path / "released")


@pytest.mark.parametrize("key", ["coefficients", "sums"])
@pytest.mark.parametrize("place", [0, -1])
def test_changed_coefficients_and_sums(one, key, place):
    def change(linear):
        # The least change of a coefficient; sums have noise, of which a coefficient shows only the size.
        linear[key][place] += 1 if key == "coefficients" else linear["norm"] * 100

    changed_linear(one, change)
    assert "center.linear cannot be replayed: the coefficients of the center do not follow from its sums" in (
        problems(one, data=False)
    )


def test_sums_that_no_labels_have(one):
    changed_linear(one, lambda linear: linear.update(sums=[value + (1 << 60) for value in linear["sums"]]))
    assert "center.linear.sums are larger than those of any labels" in problems(one, data=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("y", "the label column is a feature of the linear center"),
        ("y_center", "the center column is a feature of the linear center"),
        ("b", "center.linear.encoders have one name twice"),
    ],
)
def test_features_that_a_center_must_not_have(one, name, problem):
    changed_linear(one, lambda linear: linear["encoders"][0].update(name=name))
    assert problem in problems(one, data=False)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"norm": 255}, "norm is not between"),
        ({"epsilon": 0.0}, "components without an epsilon"),
        ({"sampled": 0}, "sampled is not between"),
        ({"labels": 20}, "labels is not the number of labels"),
        ({"more": 1}, "not exactly the members"),
        ({"signal": []}, "signal is not one float"),
        ({"weights": [[1 << 30]]}, "weights"),
        ({"gram": [[1]]}, "gram"),
        ({"sums": [0.5]}, "sums"),
    ],
)
def test_bounds_of_the_map(one, change, problem):
    changed_linear(one, lambda linear: linear.update(change))

    assert problem in problems(one, data=False)


def test_the_file_of_the_center(one):
    path = one / "center.json"
    text = path.read_text()
    document = json.loads(text)
    write_document(path, document | {"column": "other"})
    assert problems(one, data=False) == "center.json is not the linear center of mechanism.json"
    path.unlink()
    assert problems(one, data=False) == "center.json is missing: mechanism.json has a linear center"
    path.write_text(text)
    mechanism = json.loads((one / "mechanism.json").read_text())
    del mechanism["center"]["linear"]
    write_document(one / "mechanism.json", mechanism)
    assert "center.json is there, but mechanism.json has no linear center" in problems(one, data=False)
