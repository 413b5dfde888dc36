"""Linear centers under audit: predictions equal those of the job."""

import json

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
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

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


def test_correct_releases_pass(released):
    for folder in released.values():
        audit = audit_path(str(folder), data=True)
        assert audit.problems == ()
        assert audit.center_line.startswith("center       column 'y_center', linear in 6 features: ")
        assert audit.replay_line == "replayed     with the program's own code: coefficients from 7 sums"
        (line,) = (each for each in audit.data_lines if each.startswith("centers "))
        assert line.startswith("centers      every center is the one that the published map predicts")
