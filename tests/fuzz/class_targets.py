"""Targets of labels that are classes: the member `classes` of both files of a release, and the released labels."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from commands_in_process import checked
from file_targets import check_mechanism_file, empty_folder, signed
from harness import Case, Target
from hypothesis import strategies as st
from labeldp.transforms.shards.shard_formats import GroupWriter
from mutations import mutated_json
from seeds import CLASSES, class_release, parsed, workspace

_TYPES: tuple[pa.DataType, ...] = (
    pa.int64(), pa.int64(), pa.int8(), pa.float64(), pa.float32(), pa.bool_(), pa.string(), pa.binary(),
    pa.large_string(), pa.list_(pa.int64()), pa.decimal128(9, 1), pa.dictionary(pa.int32(), pa.string()), pa.null(),
)  # fmt: skip
_TEXTS = (*CLASSES, "4", " 1", "01", "1.0", "-0", "", "true", "\u0661")
_NUMBERS = (*map(int, CLASSES), 4, -1, 127)


# Both files.


@st.composite
def _files(draw: st.DrawFn) -> Case:
    """The mechanism file of a release, of which the classes or all was mutated, and its manifest."""
    whole, manifest = _seed().values()
    classes = (json.dumps(json.loads(whole)["classes"]).encode(),)
    member = draw(st.sampled_from(classes) | mutated_json(parsed(classes), classes))
    content = whole.replace(classes[0], member)
    if draw(st.booleans()):
        content = draw(mutated_json([json.loads(whole)], (whole,)))
    document = json.loads(manifest)
    if draw(st.booleans()):
        with contextlib.suppress(ValueError, RecursionError):
            manifest = _manifest(document | {"classes": json.loads(member)})
    else:
        manifest = draw(st.sampled_from([manifest]) | mutated_json([document], (manifest,)))
    return {"mechanism.json": signed(content) if draw(st.booleans()) else content, "release.json": manifest}


def _seed() -> Case:
    return {name: (class_release() / name).read_bytes() for name in ("mechanism.json", "release.json")}


def _manifest(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode("utf-8", "surrogatepass")


def _check_files(case: Case) -> bool:
    """The mechanism file alone, and both as those of their release, which passes as it is."""
    passed = check_mechanism_file({"mechanism.json": case["mechanism.json"]})
    if passed:
        _check_classes(json.loads(case["mechanism.json"]))
    folder = empty_folder() / "released"
    shutil.copytree(class_release(), folder)
    for name, content in case.items():
        (folder / name).write_bytes(content)
    audited = checked(["audit", str(folder), "--data"], workspace()).code == 0
    assert passed or not audited
    assert audited or case != _seed()
    reported = checked(["report", str(folder)], workspace()).code == 0
    assert reported == (folder / "report.html").exists()
    if audited:
        mechanism, manifest = (json.loads(case[name]) for name in ("mechanism.json", "release.json"))
        assert mechanism.get("classes") == manifest.get("classes")
        assert "classes" not in manifest or "max_bias" not in manifest
    return passed


def _check_classes(document: dict[str, Any]) -> None:
    """Checks the classes of a mechanism file that an audit passed."""
    if "classes" not in document:
        return
    values, other = document["classes"]["values"], document["classes"]["other"]
    assert 2 <= len({*values}) == len(values) <= 1000
    assert all(type(value) is str and value for value in values)
    assert type(other) is int
    assert 0 <= other < len(values)
    assert list(map(str, document["labels"])) == [f"{place}.0" for place in range(len(values))]
    assert {*map(str, document["outputs"])} <= {*map(str, document["labels"])}


# Released labels.


@st.composite
def _labels(draw: st.DrawFn) -> Case:
    """A type of the label column, and other labels of a few of its records."""
    kind = draw(st.integers(0, len(_TYPES) - 1))
    changes = draw(st.dictionaries(st.integers(0, 299), st.integers(0, 99), max_size=3))
    return {"labels": json.dumps({"type": kind, "changes": changes}).encode()}


def _check_labels(case: Case) -> bool:
    """The audit passes no column but one of the classes as they are, and every one with few changes among them."""
    folder = empty_folder() / "released"
    shutil.copytree(class_release(), folder)
    (path,) = (folder / "data").iterdir()
    table, stated = pq.read_table(path), json.loads(case["labels"])
    kind, place = _TYPES[stated["type"]], table.schema.get_field_index("y")
    values: list[Any] = [_of_kind(kind, value) for value in table["y"].to_pylist()]
    for row, choice in stated["changes"].items():
        values[int(row)] = _other_value(kind, choice)
    _write_shard(folder, path, table.set_column(place, "y", pa.array(values, kind)))
    passed = checked(["audit", str(folder), "--data"], workspace()).code == 0
    assert passed == _is_right(kind, values)
    return passed


def _write_shard(folder: Path, path: Path, table: pa.Table) -> None:
    """Writes a shard as labeldp does, and states its columns, so that the audit judges the labels alone."""
    with path.open("wb") as file, GroupWriter(file, table.schema, "none") as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write(batch)
    document = json.loads((folder / "release.json").read_bytes())
    document["output"]["columns"] = [{"name": field.name, "type": str(field.type)} for field in table.schema]
    (folder / "release.json").write_bytes(_manifest(document))


def _is_right(kind: pa.DataType, values: list[Any]) -> bool:
    """True if each label is a class, as the type has it."""
    if pa.types.is_list(kind):
        return all(len(value or ()) == 1 and value[0] in map(int, CLASSES) for value in values)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return all(str(value).removesuffix(".0") in CLASSES for value in values)
    if pa.types.is_binary(kind):
        return all(value is not None and value.decode() in CLASSES for value in values)
    return kind in (pa.string(), pa.large_string()) and all(value in CLASSES for value in values)


def _of_kind(kind: pa.DataType, value: int) -> Any:
    """A class as a value of a type."""
    if pa.types.is_list(kind):
        return [value]
    if kind == pa.null():
        return None
    if kind == pa.bool_():
        return bool(value)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return value
    if pa.types.is_floating(kind):
        return float(value)
    return str(value).encode() if pa.types.is_binary(kind) else str(value)


def _other_value(kind: pa.DataType, choice: int) -> Any:
    """Another value of a type, or none."""
    if not choice % 10 or kind == pa.null():
        return None
    number, text = _NUMBERS[choice % len(_NUMBERS)], _TEXTS[choice % len(_TEXTS)]
    if pa.types.is_list(kind):
        return [number] * (choice % 3)
    if pa.types.is_floating(kind):
        return (-0.0, float("nan"), 0.5, float(number))[choice % 4]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or kind == pa.bool_():
        return bool(number) if kind == pa.bool_() else number
    return text.encode() if pa.types.is_binary(kind) else text


def class_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    class_release()
    return [
        Target("classes", st.just(_seed()) | _files(), _check_files, 30, memory=2 << 30),
        Target("class_labels", _labels(), _check_labels, 40, memory=2 << 30),
    ]
