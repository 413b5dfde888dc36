"""Bytes of releases by command, format and option, compared with hashes in `golden_releases.json`.

The same key, input and flags must give the same release in every version: another one would be charged again. Each
record has an id, so that its noise does not depend on where the input lies. LABELDP_RENEW=1 writes the file anew, which
is for changes that are meant to change releases; the changelog says so then.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

GOLDEN = Path(__file__).with_name("golden_releases.json")
RECORDS = 600
GRID = {"label": "y", "label_min": 0, "label_max": 10, "label_step": 0.5, "epsilon": 2, "id_column": "id"}
LABELS = {"for": "labels"}
CELLS = {"center": "cells", "mechanism": "auto", "center_features": "f,k", "input_format": "parquet"}
LINEAR = {"center": "linear", "mechanism": "unbiased", "center_features": "f,k"}
CLASSES = {"label_min": None, "label_max": None, "label_step": None}
CLASS_CENTER = CLASSES | {
    "label": "grade", "label_classes": "low,mid,high", "for": "models", "center_features": "f,k", "epsilon": 3,
    "input_format": "parquet",
}  # fmt: skip
FORMATS = ("csv", "parquet", "tfrecord")


def _columns(records: int = RECORDS) -> dict[str, Any]:
    """Columns of the log, from integer arithmetic alone: the same on every machine."""
    place = np.arange(records)
    drawn = (place * 7919 + 13) * 104729 % 10007
    return {
        "id": place + 1000,
        "f": (drawn % 101) / 4,
        "k": [("red", "green", "blue")[each] for each in drawn % 3],
        "user": place // 3,
        "p": drawn % 21 / 2,
        "y": (drawn % 101 / 10 + drawn % 7 / 4) / 1.25,
        "z": drawn % 5,
    }


def _grades(table: pa.Table) -> pa.Array:
    """Classes that depend on a number, a category and an interaction of both, and on nothing else in one of seven."""
    f, k, z = (np.array(table[name].to_pylist()) for name in "fkz")
    places = np.where(table["user"].to_numpy() % 7 == 0, z % 3, (f > 12) + ((k == "red") & (f > 6)))
    return pa.array(["low", "mid", "high"]).take(pa.array(places))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Glob of the log in each format: two files, and folders `part=A` and `part=B` in "folders"."""
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    root, table = tmp_path_factory.mktemp("golden"), pa.table(_columns())
    cut = 350
    for number, part in enumerate((table.slice(0, cut), table.slice(cut))):
        rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
        lines = [",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]
        (root / f"log-{number}.csv").write_text("".join(f"{line}\n" for line in lines))
        pq.write_table(part, root / f"log-{number}.parquet", row_group_size=200)
        batch = part.combine_chunks().to_batches()[0]
        (root / f"log-{number}.tfrecord").write_bytes(frame(encode_examples(batch)))
        folder = root / f"part={'AB'[number]}"
        folder.mkdir()
        pq.write_table(part, folder / "log.parquet")
    many = pa.table(_columns(5 * RECORDS))
    pq.write_table(many, root / "many.parquet")
    pq.write_table(many.append_column("grade", _grades(many)), root / "grades.parquet")
    (root / "values.txt").write_text("0\n1\n2\n3\n5\n8\n10\n")
    return {format: root / f"log-*.{format}" for format in FORMATS} | {
        "folders": root / "part=*" / "log.parquet",
        "many": root / "many.parquet",
        "grades": root / "grades.parquet",
    }


def _jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """Flags of each command line by its name: the format of the input, and what differs from GRID."""
    jobs: dict[str, tuple[str, dict[str, Any]]] = {}
    for format in FORMATS:
        for output in ("parquet", "tfrecord"):
            for title, flags in (("labels", LABELS), ("linear", LINEAR)):
                jobs[f"{format} to {output}, {title}"] = format, {**flags, "output_format": output, "num_shards": 3}
    jobs |= {
        f"mechanism {name}": ("csv", {"mechanism": name, "center": "none"})
        for name in ("unbiased", "bias_limited", "debiased_rr", "rr", "rr_top_k", "laplace", "staircase", "exponential")
    }
    two = {"label": "y,z", "label_max": "10,4", "label_step": "0.5,1"}
    return jobs | {
        "auto": ("csv", {"mechanism": "auto"}),
        "gaussian": ("csv", {"mechanism": "gaussian", "delta": 1e-5, "center": "none"}),
        "parameters": ("csv", {"mechanism": "bias_limited:bias=0.2", "center": "none"}),
        "absolute loss": ("csv", {"mechanism": "rr_on_bins", "loss": "absolute"}),
        "values": ("csv", {**LABELS, "label_min": None, "label_max": None, "label_step": None, "label_values": "FILE"}),
        "gzip": ("tfrecord", {**LABELS, "compression": "gzip"}),
        "gzip parquet": ("parquet", {**LABELS, "compression": "gzip"}),
        "center column": ("parquet", {"mechanism": "unbiased", "center_column": "p"}),
        "prior_epsilon": ("csv", {**LABELS, "prior_epsilon": 0.25, "rounding": "randomized"}),
        "where": ("parquet", {**LABELS, "where": "k=red"}),
        "units": ("csv", {**LABELS, "unit_column": "user", "max_records_per_unit": 2}),
        "units, linear": ("parquet", {**LINEAR, "unit_column": "user", "max_records_per_unit": 2}),
        "several labels": ("csv", {**two, **LABELS}),
        "several labels, linear": ("tfrecord", {**two, **LINEAR}),
        "classes": ("csv", {**CLASSES, "label": "k", "label_classes": "red,green"}),
        "classes, tfrecord": (
            "tfrecord",
            {**CLASSES, "label": "k", "label_classes": "red,green", "other_class": "green"},
        ),
        "classes, top": ("parquet", {**CLASSES, **LABELS, "label": "z", "label_classes": "4,3,2,1,0"}),
        "classes and a number": ("parquet", {**LABELS, "label": "y,k", "label_classes": "k=blue,red,green"}),
        "cells": ("many", {**CELLS, "output_format": "tfrecord"}),
        "units, cells": ("many", {**CELLS, "unit_column": "user", "max_records_per_unit": 2}),
        "center of classes": ("grades", CLASS_CENTER),
        "units, center of classes": ("grades", {**CLASS_CENTER, "unit_column": "user", "max_records_per_unit": 2}),
        "center of classes to tfrecord": ("grades", {**CLASS_CENTER, "output_format": "tfrecord", "num_shards": 2}),
        "partitions": ("folders", {**LABELS, "partition_output": "part", "input_format": "parquet"}),
    }


JOBS = _jobs()


@pytest.fixture(scope="module")
def golden() -> Any:
    """Hashes by name of the job; renewed at the end of the module where LABELDP_RENEW=1."""
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    yield known
    if os.environ.get("LABELDP_RENEW") == "1":
        GOLDEN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


@pytest.fixture
def check(golden: dict[str, Any]) -> Callable[[str, dict[str, str]], None]:
    """Function (name, hash by file) that compares the hashes with the known ones."""

    def compare(name: str, found: dict[str, str]) -> None:
        if os.environ.get("LABELDP_RENEW") == "1":
            golden[name] = found
        assert golden.get(name) == found

    return compare


def _hashes(folder: Path) -> dict[str, str]:
    """Hash of each file of a release; without the versions of libraries, which differ from machine to machine."""
    found = {}
    for path in sorted(folder.rglob("*") if folder.is_dir() else [folder]):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "release.json":
                document = json.loads(content)
                assert document.pop("versions")
                content = json.dumps(document).encode()
            name = str(path.relative_to(folder)) if folder.is_dir() else "file"
            found[name] = hashlib.sha256(content).hexdigest()[:32]
    return found


@pytest.mark.parametrize("name", JOBS)
def test_a_release_keeps_its_bytes(
    name: str, logs: Any, invoke: Any, command: Any, outputs: Path, key_file: Path, check: Any
) -> None:
    format, flags = JOBS[name]
    files = {"input": logs[format], "input_format": format, "output": outputs / "out", "noise_key_file": key_file}
    if flags.get("label_values"):
        flags = {**flags, "label_values": logs["csv"].with_name("values.txt")}
    invoke(command("privatize", {**GRID, **files, **flags})).ok()
    if flags.get("center") == "cells":
        assert json.loads((outputs / "out" / "center.json").read_text())["linear"]["cells"]["sums"]
    check(name, _hashes(outputs / "out"))


@pytest.mark.parametrize("flags", [LABELS, LINEAR], ids=["labels", "linear"])
def test_fit_and_apply_keep_their_bytes(
    flags: Any, logs: Any, invoke: Any, command: Any, outputs: Path, key_file: Path, check: Any
) -> None:
    files = {"input": logs["parquet"], "input_format": "parquet", "noise_key_file": key_file}
    mechanism, title = outputs / "m.json", "linear" if flags is LINEAR else "labels"
    invoke(command("fit", {**GRID, **files, **flags, "mechanism_file": mechanism})).ok()
    check(f"fit, {title}", _hashes(mechanism))
    applied = {"label": "y", "id_column": "id", **files, "mechanism_file": mechanism, "output": outputs / "out"}
    invoke(command("apply", applied)).ok()
    check(f"apply, {title}", _hashes(outputs / "out"))


def test_domain_keeps_its_bytes(
    logs: Any, invoke: Any, command: Any, outputs: Path, key_file: Path, check: Any
) -> None:
    files = {"input": logs["csv"], "input_format": "csv", "noise_key_file": key_file}
    asked = {"label": "y", "id_column": "id", "epsilon": 1, "domain_file": outputs / "domain.json"}
    invoke(command("domain", {**files, **asked})).ok()
    check("domain", _hashes(outputs / "domain.json"))


def test_labels_in_python_keep_their_bytes(outputs: Path, secret: bytes, check: Any) -> None:
    """Here records are named by their rows."""
    from labeldp import LabelPrivatizer

    privatizer = LabelPrivatizer(
        label_min=0, label_max=10, label_step=0.5, epsilon=2, source="/logs/golden", noise_key=secret,
        ledger=outputs / "ledger", label="y",
    )  # fmt: skip
    released = privatizer.fit_transform(np.array(_columns()["y"]))
    check("python", {"labels": hashlib.sha256(released.astype("<f8").tobytes()).hexdigest()[:32]})
