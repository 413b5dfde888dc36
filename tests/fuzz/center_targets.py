"""Targets of labels around a center: the member `center` of mechanism files, and jobs on center columns of any kind."""

import datetime
import decimal
import io
import json
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from commands_in_process import CANARY, checked
from file_targets import check_mechanism_file, empty_folder, signed
from harness import Case, Target
from hypothesis import strategies as st
from mutations import NUMBERS, mutated_json
from seeds import cell_release, centered_release, job, parsed, workspace

_RECORDS = 8
_FLOATS = (0.0, -0.0, 1.5, 20_000.0, 4e4, -1e5, 1e308, -1e308, 3.5e38, 1e-300, float("nan"), float("inf"), None)
_INTEGERS = (0, 1, -1, 20_000, 1 << 24, (1 << 24) + 1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))
_CELLS = (*NUMBERS, "", '""', "3.5", "20000", "word", '"a b"', "true", "2026-01-01", "NULL")


# Mechanism files.


@st.composite
def _mechanisms(draw: st.DrawFn) -> Case:
    """The mechanism file of a release, whose center was mutated alone."""
    content = (centered_release() / "mechanism.json").read_bytes()
    center = (json.dumps(json.loads(content)["center"]).encode(),)
    before, center_of_release, after = content.partition(center[0])
    assert center_of_release
    content = before + draw(mutated_json(parsed(center), center)) + after
    return {"mechanism.json": signed(content) if draw(st.booleans()) else content}


def _seed() -> Case:
    return {"mechanism.json": (centered_release() / "mechanism.json").read_bytes()}


def _check_release(case: Case) -> bool:
    """The file alone, and as that of its release, which passes as it is."""
    passed = check_mechanism_file(case)
    folder = empty_folder() / "released"
    (folder / "data").mkdir(parents=True)
    for shard in (centered_release() / "data").iterdir():
        (folder / "data" / shard.name).write_bytes(shard.read_bytes())
    (folder / "release.json").write_bytes((centered_release() / "release.json").read_bytes())
    (folder / "mechanism.json").write_bytes(case["mechanism.json"])
    audit = checked(["audit", str(folder), "--data"], workspace())
    assert passed or audit.code
    assert audit.code == 0 or case != _seed()
    reported = checked(["report", str(folder)], workspace()).code == 0
    assert reported == (folder / "report.html").exists()
    return passed


# Cells of a center, in center.json and in the mechanism file.


@st.composite
def _cells(draw: st.DrawFn) -> Case:
    """The cells of a release, mutated."""
    document = json.loads((cell_release() / "center.json").read_bytes())
    cells = (json.dumps(document["linear"]["cells"]).encode(),)
    return {"cells.json": draw(mutated_json(parsed(cells), cells))}


def _check_cells(case: Case) -> bool:
    """The audit of the release with these cells; what passes, the product reads."""
    from labeldp import CenterModel

    folder = empty_folder() / "released"
    shutil.copytree(cell_release(), folder)
    for name in ("center.json", "mechanism.json"):
        content = (folder / name).read_bytes()
        document = json.loads(content)
        linear = document["linear"] if name == "center.json" else document["center"]["linear"]
        # Only the cells are of the case: the audit reads every other byte as labeldp wrote it.
        before, cells, after = content.partition(json.dumps(linear["cells"]).encode())
        assert cells
        (folder / name).write_bytes(before + case["cells.json"] + after)
    passed = checked(["audit", str(folder), "--data"], workspace()).code == 0
    if passed:
        CenterModel.from_json((folder / "center.json").read_text())
    reported = checked(["report", str(folder)], workspace()).code == 0
    assert reported == (folder / "report.html").exists()
    assert reported or not passed
    return passed


# Jobs.


def _column(draw: st.DrawFn) -> pa.Array | None:
    """A column of centers of some type; None if the file has none."""
    floats, integers = st.sampled_from(_FLOATS), st.sampled_from(_INTEGERS)

    def of(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([draw(values) for _ in range(_RECORDS)], kind)

    lists = st.none() | st.lists(floats, max_size=2)
    small = st.none() | st.decimals(-999, 999, places=2)
    kinds: tuple[Any, ...] = (
        lambda: None,
        lambda: of(floats, pa.float64()),
        lambda: of(floats, pa.float64()),
        lambda: of(floats, pa.float32()),
        lambda: of(integers, pa.int64()),
        lambda: of(st.integers(0, (1 << 64) - 1) | st.none(), pa.uint64()),
        lambda: of(lists, pa.list_(pa.float64())),
        lambda: of(lists, pa.large_list(pa.float32())),
        lambda: of(st.lists(floats, min_size=1, max_size=1), pa.list_(pa.float64(), 1)),
        lambda: of(st.lists(st.sampled_from(["a", "1"]), max_size=2), pa.list_(pa.string())),
        lambda: of(st.lists(lists, max_size=1), pa.list_(pa.list_(pa.float64()))),
        lambda: of(small, pa.decimal128(9, 2)),
        lambda: of(st.sampled_from([None, decimal.Decimal("1e50")]), pa.decimal256(60, 2)),
        lambda: of(st.none(), pa.null()),
        lambda: of(st.booleans(), pa.bool_()),
        lambda: of(st.sampled_from(["1", "word", None, CANARY]), pa.string()),
        lambda: of(st.sampled_from([b"1", b"\xff"]), pa.binary()),
        lambda: of(st.sampled_from([1.5, 2.5, None]), pa.float64()).dictionary_encode(),
        lambda: of(st.just(datetime.datetime(2026, 1, 1)), pa.timestamp("us")),
        lambda: of(st.fixed_dictionaries({"c": floats}), pa.struct({"c": pa.float64()})),
    )
    return draw(st.sampled_from(kinds))()


def _parquet(draw: st.DrawFn, labels: list[float]) -> bytes:
    column = _column(draw)
    table = pa.table({"y": labels} if column is None else {"c": column, "y": pa.array(labels)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _csv(draw: st.DrawFn, labels: list[float]) -> bytes:
    if draw(st.integers(0, 4)) == 0:
        return ("y\n" + "".join(f"{label}\n" for label in labels)).encode()
    cells = st.sampled_from(_CELLS if draw(st.booleans()) else ("1", "2.5", "", "nan", "-inf", "1e999", "3e4"))
    return ("c,y\n" + "".join(f"{draw(cells)},{label}\n" for label in labels)).encode(errors="replace")


def _tfrecord(draw: st.DrawFn, labels: list[float]) -> bytes:
    import tensorflow as tf
    from labeldp.transforms.tfrecord.framing import frame

    floats, integers = st.sampled_from([v for v in _FLOATS if v is not None]), st.sampled_from(_INTEGERS)
    kinds: tuple[Any, ...] = (
        lambda: {},
        lambda: {"float_list": {"value": [draw(floats)]}},
        lambda: {"float_list": {"value": draw(st.lists(floats, max_size=2))}},
        lambda: {"int64_list": {"value": draw(st.lists(integers, min_size=1, max_size=2))}},
        lambda: {"int64_list": {"value": [draw(integers)]}},
        lambda: {"bytes_list": {"value": [b"word"]}},
    )
    usual = draw(st.sampled_from(kinds))
    records = []
    for label in labels:
        features: dict[str, Any] = {"y": tf.train.Feature(float_list=tf.train.FloatList(value=[label]))}
        made = usual() if draw(st.integers(0, 5)) else draw(st.sampled_from(kinds))()
        lists = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List, "bytes_list": tf.train.BytesList}
        for name, content in made.items():
            # Protocol buffers refuse floats that are no float32; files hold infinity there.
            values = [float("inf") if name == "float_list" and v > 3.4e38 else v for v in content["value"]]
            values = [float("-inf") if name == "float_list" and v < -3.4e38 else v for v in values]
            features["c"] = tf.train.Feature(**{name: lists[name](value=values)})
        records.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return frame(records)


_WRITERS = {"csv": _csv, "parquet": _parquet, "tfrecord": _tfrecord}


@st.composite
def _inputs(draw: st.DrawFn) -> Case:
    """One or two files of a format, whose column c is of some kind in each, or missing."""
    format = draw(st.sampled_from(list(_WRITERS)))
    files = {}
    for place in range(draw(st.integers(1, 2))):
        labels = [draw(st.sampled_from([0.0, 1.0, 20_000.0, 4e4, float(CANARY)])) for _ in range(_RECORDS)]
        files[f"{place}"] = _WRITERS[format](draw, labels)
    flags = {
        "input_format": format,
        "output_format": draw(st.sampled_from(["tfrecord", "parquet"])),
        "id_column": draw(st.sampled_from([None, None, None, "c"])),
        "where": draw(st.sampled_from([None, None, None, "c=1"])),
        "mechanism": draw(st.sampled_from(["unbiased", "rr_on_bins"])),
    }
    return {**files, "flags": json.dumps(flags).encode()}


def _check_job(case: Case) -> bool:
    flags: dict[str, Any] = json.loads(case["flags"])
    folder = empty_folder()
    inputs, outputs = folder / "in", folder / "outputs"
    inputs.mkdir()
    outputs.mkdir()
    for name, content in case.items():
        if name != "flags":
            (inputs / name).write_bytes(content)
    domain = {"label_max": 40_000, "label_step": 5_000, "center_column": "c"}
    outcome = checked(job("privatize", input=inputs / "*", output=outputs / "released", **domain, **flags), workspace())
    if outcome.code:
        assert not list(outputs.iterdir()), "a failed job left something"
        return False
    audit = checked(["audit", str(outputs / "released"), "--data"], workspace())
    assert audit.code == 0, audit.out
    return True


def center_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    centered_release()
    cell_release()
    return [
        Target("center_mechanism", st.just(_seed()) | _mechanisms(), _check_release, 30, memory=2 << 30),
        Target("cells", _cells(), _check_cells, 20, memory=2 << 30),
        Target("center_job", _inputs(), _check_job, 6, memory=6 << 30),
    ]
