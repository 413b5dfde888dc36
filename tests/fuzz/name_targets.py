"""Target of names: keys and names of the job itself as data of its input, on a runner that encodes every batch.

They are offered as metadata of schemas and fields, columns, features, folders and ids. No stage is fused with another,
so that the coder of batches is used between all of them, as on clusters.
"""

import base64
import builtins
import csv
import io
import json
import pickle
import urllib.parse
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.runners.portability.fn_api_runner import translations
from commands_in_process import checked
from file_targets import empty_folder
from harness import Case, Target
from hypothesis import strategies as st
from job_targets import check_release
from references import parsed_examples, records_of
from seeds import job, log, workspace

_ROWS = 40
# None of them is an output of a mechanism, whose labels are those of the domain.
_LABELS = [10_000.5 + 64 * row for row in range(_ROWS)]
_PROOF = "labeldp_fuzz_planted"
# Text that stands in metadata alone.
_MARKER = "kept in metadata"

_NAMES = (
    "labeldp.carried", "labeldp.batch", "\0frames", "\0label offsets", "\0label offsets y", "carried", "encoded",
    "source", "start", "stop", "mechanism", "unit", "left_out", "constant", "labels", "sizes", "row", "rows", "own",
    "batch", "center", "y_center", "randomizer", "binding", "ranges", "design", "file and row", "labeldp.invalid",
    "pandas", "org.apache.spark.sql.parquet.row.metadata", "ARROW:schema", "ARROW:extension:name",
    "ARROW:extension:metadata", "PARQUET:field_id", "beam:schema_id", "__index_level_0__", "list.element", "",
)  # fmt: skip
"""Names that the job, its libraries or an earlier version of it gave a meaning to."""


class _Planted:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import builtins; builtins.{_PROOF} = True",)


def _values() -> tuple[bytes, ...]:
    """Contents that would do harm where the job takes them for its own."""
    from labeldp.transforms import LabelledBatch
    from labeldp.transforms.batches import LabelledBatchCoder

    planted = pickle.dumps(_Planted())
    batch = LabelledBatch.whole("a", 0, pa.RecordBatch.from_pydict({"y": [1.0]})).carry(["ranges"], [1])
    return (
        planted,
        base64.b64encode(planted),
        LabelledBatchCoder().encode(batch),
        pa.schema([pa.field("y", pa.int64(), metadata={"labeldp.carried": planted})]).serialize().to_pybytes(),
        b'{"source": "a", "start": 0, "stop": 1, "own": 1, "labels": ["y"], "sizes": [0, 8]}',
        b"arrow.py_extension_type",
        b"arrow.uuid",
    )


def _frames() -> list[bytes]:
    """Frames of records with the true labels, as the fast path of TFRecords would write them."""
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    return [frame([one]) for one in encode_examples(pa.RecordBatch.from_pydict({"y": pa.array(_LABELS, pa.float32())}))]


def _columns(draw: st.DrawFn, names: list[str]) -> dict[str, pa.Array]:
    """Feature columns of these names: frames, offsets into them, planted content, or numbers."""
    kinds: tuple[Any, ...] = (
        lambda: pa.array(_frames(), pa.large_binary()),
        lambda: pa.array([len(frame) - 8 for frame in _frames()], pa.int64()),
        lambda: pa.array([draw(st.sampled_from(_values()))] * _ROWS, pa.binary()),
        lambda: pa.array(np.arange(_ROWS), pa.int64()),
        lambda: pa.array(np.arange(_ROWS) / 2, pa.float32()),
        lambda: pa.array([f"{names[0]} {row}" for row in range(_ROWS)]),
    )
    return {name: draw(st.sampled_from(kinds))() for name in names}


def _parquet(draw: st.DrawFn, columns: dict[str, pa.Array]) -> bytes:
    """A file with metadata of the schema, of fields and of fields within them."""
    values = st.sampled_from([*_values(), _MARKER.encode()])

    def metadata() -> dict[str, bytes]:
        return {name or "k": draw(values) for name in draw(st.lists(st.sampled_from(_NAMES), max_size=3))}

    fields = [pa.field(name, column.type, metadata=metadata()) for name, column in columns.items()]
    element = pa.field("element", pa.int64(), metadata={"k": _MARKER, **metadata()})
    inner = draw(st.sampled_from([pa.list_(element), pa.large_list(element), pa.list_(element, 1)]))
    fields.append(pa.field("nested", inner, metadata={"k": _MARKER}))
    arrays = [*columns.values(), pa.array([[row] for row in range(_ROWS)], inner)]
    schema = pa.schema(fields, metadata={"k": _MARKER, "labeldp.carried": pickle.dumps(_Planted()), **metadata()})
    sink = io.BytesIO()
    # Without the schema of Arrow, metadata of that name is the file's.
    pq.write_table(pa.table(arrays, schema=schema), sink, store_schema=draw(st.booleans()), row_group_size=16)
    return sink.getvalue()


def _csv(draw: st.DrawFn, columns: dict[str, pa.Array]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    lists = [column.to_pylist() for column in columns.values()]
    for row in zip(*lists, strict=True):
        writer.writerow([value.hex() if isinstance(value, bytes) else value for value in row])
    return text.getvalue().encode()


def _tfrecord(draw: st.DrawFn, columns: dict[str, pa.Array]) -> bytes:
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    columns = {**columns, "y": columns["y"].cast(pa.float32())}
    return frame(encode_examples(pa.RecordBatch.from_pydict(columns)))


_WRITERS = {"csv": _csv, "parquet": _parquet, "tfrecord": _tfrecord}


@st.composite
def _inputs(draw: st.DrawFn) -> Case:
    """A file of some format below a folder."""
    format = draw(st.sampled_from(list(_WRITERS)))
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4, unique=True))
    columns = _columns(draw, names)
    columns["id"] = pa.array([f"{names[0]} {row}" for row in range(_ROWS)])
    columns["y"] = pa.array(_LABELS)
    # A folder of the name of a column is refused.
    folder = draw(st.sampled_from([None, names[0] or None, draw(st.sampled_from([name for name in _NAMES if name]))]))
    value = draw(st.sampled_from(_NAMES))
    path = "" if folder is None else f"{urllib.parse.quote(folder, '')}={urllib.parse.quote(value, '')}/"
    flags = {
        "input_format": format,
        "output_format": draw(st.sampled_from(["tfrecord", "parquet"])),
        "id_column": draw(st.sampled_from([None, "id"])),
        "num_shards": draw(st.sampled_from([1, 3])),
        "unit_column": draw(st.sampled_from([None, "id"])),
    }
    expected = [*columns, *([] if folder is None else [folder]), *(["nested"] if format == "parquet" else [])]
    document = {"path": f"{path}in", "columns": expected, "flags": flags}
    return {"case": json.dumps(document).encode(), "file": _WRITERS[format](draw, columns)}


def _check_names(case: Case) -> bool:
    document = json.loads(case["case"])
    flags: dict[str, Any] = document["flags"]
    folder = empty_folder()
    path, outputs = folder / "log" / document["path"], folder / "outputs"
    path.parent.mkdir(parents=True)
    outputs.mkdir()
    path.write_bytes(case["file"])
    if flags["unit_column"] is not None:
        flags["max_records_per_unit"] = 1
    released = outputs / "released"
    domain = {"label_max": 40_000, "label_step": 20_000, "for": "labels"}
    argv = job("privatize", input=folder / "log" / "**", output=released, **domain, **flags)
    with mock.patch.object(translations.Stage, "can_fuse", return_value=False):
        outcome = checked(argv, workspace())
    assert not hasattr(builtins, _PROOF), "content of the file was unpickled"
    if outcome.code:
        assert not list(outputs.iterdir()), "a failed job left something"
        return False
    audit = checked(["audit", str(released), "--data"], workspace())
    assert audit.code == 0, audit.out
    check_release(released, flags["output_format"])
    for shard in (released / "data").iterdir():
        content = shard.read_bytes()
        assert _MARKER.encode() not in content, "metadata of the file was released"
        if flags["output_format"] == "parquet":
            schema = pq.read_schema(shard)
            assert not schema.metadata
            assert sorted(schema.names) == sorted(document["columns"])
        else:
            for features in parsed_examples(records_of(content)[0]) or []:
                assert set(features) <= set(document["columns"])
                assert {"y", *document["columns"][:1]} <= set(features)
    return True


def name_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    log()
    return [Target("names", _inputs(), _check_names, 6, memory=6 << 30)]
