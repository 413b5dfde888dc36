"""Laws of every release: what other ways of making it give, and what the audit finds.

The cases are those of `release_cases`; their bytes are in test_golden_releases.
"""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import labeldp
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.api import feature_frames
from labeldp.pipelines.spec import input_spec
from labeldp.transforms import Format, Limits
from labeldp.transforms.tfrecord.framing import frame, read_records

from tests.audit.written_files import write_document, write_shard
from tests.release_cases import CASES, VALUES, Case, over, table_of
from tests.written_logs import write_log

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
LAWS = [name for name, case in CASES.items() if case.laws]
ALONE = [name for name in LAWS if len(CASES[name].labels) == 1]
OF_APPLY = ("id_column", "missing_label", "max_unusable_fraction", "where", "partition_output", "output_format")
OF_APPLY += ("num_shards", "shuffle", "input", "input_format", "noise_key_file", "ledger", "label", "delta")
OF_FRAMES = ("epsilon", "certified_epsilon", "records")
OF_FILES = ("input", "input_format", "output_format", "num_shards", "partition_output", "where", "for", "shuffle")


def charged(ledger: Path) -> set[str]:
    """The charges in a ledger."""
    return {each["release"] for line in ledger.read_text().splitlines() for each in json.loads(line)["charges"]}


def documents(folder: Path, name: str) -> list[Path]:
    """Files of that name, of the release or of each of its labels."""
    return sorted(folder.rglob(name))


@pytest.fixture
def rows(read_examples: Any) -> Callable[[Path, Case], pa.Table]:
    """Function (release, its case) -> ids, labels and centers of its records in the order of ids; no centers of
    TFRecords."""

    def read(folder: Path, case: Case) -> pa.Table:
        files = [path for path in sorted((folder / "data").rglob("*")) if path.is_file()]
        if files[0].suffix == ".tfrecord":
            types: dict[str, type] = {"id": int} | dict.fromkeys(case.labels, float)
            if "label_classes" in case.flags:
                types[case.labels[-1]] = bytes
            table = pa.concat_tables([pa.table(read_examples(path, types)) for path in files])
        else:
            table = pa.concat_tables([pq.ParquetFile(path).read() for path in files])
            table = table.select([name for name in table.column_names if is_drawn(name, case)])
            # Features of TFRecords are lists in Parquet.
            table = table.set_column(table.schema.get_field_index("id"), "id", pa.array(plain(table["id"]), pa.int64()))
        return table.sort_by("id")

    def is_drawn(name: str, case: Case) -> bool:
        return name in ("id", *case.labels) or name.endswith(("_center", "_probabilities"))

    return read


def plain(column: Any) -> list[Any]:
    """Values of a column: lists of one as their value, bytes as text, numbers in single precision."""
    values = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in column.to_pylist()]
    values = [value.decode() if isinstance(value, bytes) else value for value in values]
    return [float(np.float32(value)) if isinstance(value, float) else value for value in values]


@over(ALONE)
def test_fit_and_apply_give_the_bytes_of_privatize(
    name: str, base: Any, invoke: Any, command: Any, tmp_path: Path, tree: Any
) -> None:
    """Together they are charged for what privatize is charged for."""
    one = base(name)
    before, file = charged(one.ledger), tmp_path / "m.json"
    of_shards = {"output_format", "num_shards", "partition_output", "shuffle"}
    fit = {key: value for key, value in one.flags.items() if key not in of_shards}
    invoke(command("fit", {**fit, "mechanism_file": file})).ok()
    assert charged(one.ledger) <= before
    apply = {key: one.flags[key] for key in OF_APPLY if key in one.flags}
    invoke(command("apply", {**apply, "mechanism_file": file, "output": tmp_path / "out"})).ok()
    assert charged(one.ledger) == before
    released, applied = (tree(folder) for folder in (one.folder, tmp_path / "out"))
    assert released.keys() == applied.keys()
    assert [key for key in released if released[key] != applied[key]] in ([], ["release.json"])


@over(LAWS)
def test_a_repeated_run_of_two_workers_gives_the_same_bytes_and_charges_nothing(
    name: str, base: Any, invoke: Any, command: Any, tmp_path: Path, tree: Any
) -> None:
    one = base(name)
    before = charged(one.ledger)
    again = {"output": tmp_path / "out", "direct_num_workers": 2, "epsilon_cap": one.flags["epsilon"]}
    again["delta_cap"] = one.flags.get("delta")
    invoke(command("privatize", {**one.flags, **again})).ok()
    assert tree(tmp_path / "out") == tree(one.folder)
    assert charged(one.ledger) == before


@over(["csv to tfrecord, labels", "orc", "tfrecord to tfrecord, linear", "units, linear", "cells", "center of classes",
       "shuffled", "shuffled, linear", "shuffled labels of tfrecords"])  # fmt: skip
def test_the_order_of_files_and_records_changes_nothing(
    name: str, base: Any, invoke: Any, command: Any, tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are others, too, and one file has no record. Shards are the same bytes if they are shuffled."""
    one = base(name)
    table = table_of(one.case)
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    for place, (start, stop) in enumerate([(0, 0), (0, 1), (1, 240), (240, len(table))]):
        write_log(tmp_path / f"{place}.{one.case.format}", shuffled.slice(start, stop - start))
    monkeypatch.setattr(input_spec, "Format", partial(Format, limits=Limits(batch_rows=50)))
    moved = {"input": tmp_path / f"*.{one.case.format}", "output": tmp_path / "out", "num_shards": 2}
    # Files elsewhere are another request, which is charged.
    moved["ledger"] = tmp_path / "ledger.jsonl"
    invoke(command("privatize", {**one.flags, **moved})).ok()
    assert rows(tmp_path / "out", one.case).equals(rows(one.folder, one.case))
    if one.case.flags.get("shuffle"):
        shards = [sorted((folder / "data").iterdir()) for folder in (tmp_path / "out", one.folder)]
        assert [path.read_bytes() for path in shards[0]] == [path.read_bytes() for path in shards[1]]
    for file in ("mechanism.json", "center.json"):
        found, wanted = (documents(folder, file) for folder in (tmp_path / "out", one.folder))
        assert [path.read_bytes() for path in found] == [path.read_bytes() for path in wanted]


@over(ALONE)
def test_labels_in_memory_are_those_of_the_command(
    name: str, base: Any, tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So releases of one log in several formats have the same labels, in whatever blocks. So have those of `fit` and
    `transform`. Facts, charges and predicted centers are the same, too."""
    monkeypatch.setattr(feature_frames, "BLOCK", 250)
    one = base(name)
    flags = {key: value for key, value in one.flags.items() if value is not None and key not in OF_FILES}
    if "for" in one.flags or "mechanism" not in one.flags:
        flags["for_"] = one.flags.get("for", "labels")
    for key in ("label_classes", "center_features"):
        if key in flags:
            flags[key] = flags[key].split(",")
    if "label_values" in flags:
        flags["label_values"] = VALUES
    if "id_column" not in flags:
        flags["source"] = str(one.flags["input"])
    table = table_of(one.case)
    released = labeldp.privatize(table, **flags)
    streamed = labeldp.privatize(lambda: table.to_reader(77), **flags)
    assert streamed.frame.read_all().equals(released.frame)
    released.write_mechanism(tmp_path / "mechanism.json")
    assert (tmp_path / "mechanism.json").read_bytes() == (one.folder / "mechanism.json").read_bytes()
    found, wanted = released.frame.sort_by("id"), rows(one.folder, one.case)
    for column in wanted.column_names:
        assert plain(found[column]) == plain(wanted[column]), column
    manifest = json.loads((one.folder / "release.json").read_text())
    assert {key: getattr(released, key) for key in OF_FRAMES} == {key: manifest[key] for key in OF_FRAMES}
    assert [warning.name for warning in released.warnings] == manifest["warnings"]
    assert released.privatizer.features == manifest["features"] - (one.case.log == "folders")
    runs = [json.loads(line)["charges"] for line in one.ledger.read_text().splitlines()]
    assert runs[-1] == runs[0]
    given = {"ids": "id_column", "units": "unit_column"}
    if (one.folder / "center.json").exists():
        given["features"] = ""
        if "linear" in manifest.get("center", {}):
            model = labeldp.CenterModel.from_json((one.folder / "center.json").read_text())
            features = {feature: released.frame[feature].to_pylist() for feature in model.features}
            np.testing.assert_array_equal(released.predict_center(released.frame), model.predict(features))
            np.testing.assert_array_equal(model.predict(features), released.center)
    elif "center_column" in flags:
        given["center"] = "center_column"
    beside = {key: table[flags[flag]] if flag else table for key, flag in given.items() if not flag or flag in flags}
    made = labeldp.LabelPrivatizer(**flags, features=manifest["features"]).fit(table[one.case.labels[0]], **beside)
    drawn = plain(made.transform(table[one.case.labels[0]], **beside))
    assert [value for value in drawn if value is not None and value == value] == plain(
        released.frame[one.case.labels[0]]
    )


@over([name for name in LAWS if name not in ALONE])
def test_each_of_several_labels_is_what_a_job_of_its_own_releases(
    name: str, base: Any, invoke: Any, command: Any, tmp_path: Path, rows: Any
) -> None:
    """Noise is bound to label, epsilon and records, so another label beside it changes nothing, and costs nothing."""
    one = base(name)
    before, together = charged(one.ledger), rows(one.folder, one.case)
    for place, label in enumerate(one.case.labels):
        part = json.loads((one.folder / "labels" / label / "release.json").read_text())
        own: dict[str, Any] = {"label": label, "epsilon": part["epsilon"], "output": tmp_path / label}
        own |= {key: str(one.flags[key]).split(",")[-1 if "," not in str(one.flags[key]) else place]
                for key in ("label_max", "label_step") if one.flags.get(key) is not None}  # fmt: skip
        if label == "k":
            own |= {"label_min": None, "label_max": None, "label_step": None, "label_classes": "blue,red,green"}
        elif "label_classes" in one.flags:
            own["label_classes"] = None
        invoke(command("privatize", {**one.flags, **own})).ok()
        alone = rows(tmp_path / label, Case(one.case.log, own))
        for column in alone.column_names:
            assert plain(alone[column]) == plain(together[column]), column
    assert charged(one.ledger) == before


# The audit.


@over(CASES)
def test_the_audit_of_the_records_passes(name: str, base: Any) -> None:
    audit = audit_path(str(base(name).folder), data=True)
    assert audit.problems == ()


def _label(folder: Path, case: Case) -> None:
    """Changes one label to a value that is no output."""
    path = max((path for path in (folder / "data").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    label = case.labels[-1]
    if path.suffix == ".tfrecord":
        with path.open("rb") as file:
            records = next(read_records(file, str(path), 1 << 20, None)).records()
        start = re.escape(b"\x0a%c%s\x12" % (len(label), label.encode()))
        text = (rb"(.\x0a.\x0a.)(red|green)", b"bluee"), (rb"(.\x12.\x0a.)(....)", b"\0\1\2\3")
        kind, other = text[label != "k"]
        kept = re.compile(rb"(%s%s)" % (start, kind), re.DOTALL).search(records[7])
        assert kept
        changed = records[7][: kept.start(3)] + other[: len(kept[3])] + records[7][kept.end(3) :]
        path.write_bytes(frame([*records[:7], changed, *records[8:]]))
        return
    table = pq.ParquetFile(path).read()
    column = table[label]
    values = column.to_pylist()
    old = values[7][0] if isinstance(values[7], list) else values[7]
    new = "violet" if isinstance(old, str) else old + 9 if isinstance(old, int) else old + 0.0137
    values[7] = [new] if isinstance(values[7], list) else new
    table = table.set_column(
        table.schema.get_field_index(label), table.schema.field(label), pa.array(values, column.type)
    )
    write_shard(table, path)


def _weight(folder: Path, case: Case) -> None:
    """Changes one weight of the randomizer, or of the center that classes are drawn from."""
    path = documents(folder, "mechanism.json")[-1]
    document = json.loads(path.read_text())
    if "columns" in document:
        run = document["columns"][0][0]
        run[0] = type(run[0])(int(run[0]) + 1)
        write_document(path, document)
    else:
        path = folder / "center.json"
        path.write_text(path.read_text().replace("1", "2", 1))


def _member(folder: Path, case: Case) -> None:
    """Changes one member of the manifest."""
    document = json.loads((folder / "release.json").read_text())
    write_document(folder / "release.json", document | {"epsilon": document["epsilon"] / 2})


@over(LAWS)
def test_the_audit_finds_one_changed_label_weight_or_member(name: str, base: Any, tmp_path: Path) -> None:
    one = base(name)
    for change in (_label, _weight, _member):
        copy = shutil.copytree(one.folder, tmp_path / change.__name__)
        change(copy, one.case)
        assert audit_path(str(copy), data=True).problems, change.__doc__
