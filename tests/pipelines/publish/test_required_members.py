"""Documents without one of their members: the auditor refuses each, and the readers those that a release always has."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.mechanisms.center.center_model import CenterModel
from labeldp.pipelines.publish.manifest import read_manifest
from labeldp.pipelines.spec.mechanism_file import read_mechanism_file
from labeldp.transforms.errors import InputError

from tests.audit.written_files import write_document

RECORDS = 400
GRID = {"label": "y", "label_min": 0, "label_max": 4, "label_step": 1, "mechanism": "rr", "center": "none"}
FORMS: dict[str, dict[str, Any]] = {
    "numbers": GRID,
    "unit": GRID | {"unit_column": "user", "max_records_per_unit": 2},
    "center": GRID | {"center": "cells", "center_features": "a,k"},
    "classes": {"label": "c", "label_classes": "x,y,z", "center": "none"},
    "center of classes": {"label": "c", "label_classes": "x,y,z", "center": "cells", "center_features": "a,k"},
}
READERS = {
    "release.json": read_manifest,
    "mechanism.json": read_mechanism_file,
    "center.json": lambda path: CenterModel.from_json(Path(path).read_text()),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: Any, invoke: Any, command: Any, key_file: Path) -> Path:
    folder, places = tmp_path_factory.mktemp("members"), range(RECORDS)
    columns = {
        "y": [place % 5 for place in places], "a": [float(place % 7) for place in places],
        "k": ["uv"[place % 2] for place in places], "user": [place // 2 for place in places],
        "c": ["xyz"[place % 3] for place in places],
    }  # fmt: skip
    columns["y"][3] = None  # type: ignore[call-overload]
    pq.write_table(pa.table(columns), folder / "log.parquet")
    flags = {
        "input": folder / "log.parquet",
        "input_format": "parquet",
        "epsilon": 1,
        "noise_key_file": key_file,
        "max_unusable_fraction": 0.1,
    }
    for name, more in FORMS.items():
        invoke(command("privatize", flags | more | {"output": folder / name})).ok()
        assert audit_path(str(folder / name)).problems == ()
    return folder


def members(document: Any, name: str = "") -> Iterator[tuple[str, ...]]:
    """Paths of all members, but of objects whose names are values, such as shards; of lists, in the first object."""
    if isinstance(document, list):
        document = document[0] if document and isinstance(document[0], dict) else {}
    if isinstance(document, dict) and name not in ("parameters", "shards", "dead_letters", "model_errors"):
        for key, value in document.items():
            yield (key,)
            yield from ((key, *rest) for rest in members(value, key))


def without(document: Any, path: tuple[str, ...]) -> Any:
    if isinstance(document, list):
        return [without(document[0], path), *document[1:]]
    key, *rest = path
    if rest:
        return document | {key: without(document[key], tuple(rest))}
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", READERS)
def test_the_auditor_requires_every_member(released: Path, tmp_path: Path, form: str, name: str) -> None:
    folder = shutil.copytree(released / form, tmp_path / "released")
    path = folder / name
    if not path.exists():
        return
    document = json.loads(path.read_text())
    for member in members(document):
        write_document(path, without(document, member))
        assert audit_path(str(folder), data=True).problems, member


@pytest.mark.parametrize("name", READERS)
def test_readers_require_what_every_release_has(released: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    document = json.loads((released / ("center" if name == "center.json" else "numbers") / name).read_text())
    # Releases of labels in memory have no shards; dead letters are those of records without a label.
    optional = {("output",), ("dead_letters",)}
    required = [each for each in members(document) if len(each) == 1 or each[0] in ("prior", "linear", "domain")]
    for member in {*required} - optional:
        path.write_text(json.dumps(without(document, member)))
        with pytest.raises((InputError, ValueError)) as caught:
            READERS[name](str(path))
        assert name == "center.json" or str(path) in str(caught.value)
