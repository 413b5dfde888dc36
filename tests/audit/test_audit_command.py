"""`labeldp audit`: its output, its exit codes, what it imports and its speed."""

import ast
import inspect
import json
import random
import sys
import time
from pathlib import Path

import pytest
from labeldp.audit import documents
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main

from tests.audit.mechanism_files import changed, random_row, valid_mechanism, write


def test_run_reports_and_exits(folder, capsys):
    assert main(["audit", str(folder / "mechanism.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mechanism    rr: 3 labels, 3 outputs, probabilities in units of 2^-8"
    assert lines[1].startswith("epsilon      at most 0.6931471805599454, recomputed from the weights;")
    assert lines[-1] == "PASS"
    assert main(["audit", str(folder)]) == 0
    capsys.readouterr()
    document = json.loads((folder / "mechanism.json").read_text())
    write(folder / "mechanism.json", changed(document, ("certificate", "max_bias"), 0.5))
    write(folder / "release.json", json.loads((folder / "release.json").read_text()) | {"max_bias": 0.5})
    assert main(["audit", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "FAIL: certificate.max_bias is not the largest true bias, rounded up"


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["--no_such_flag", "a"]])
def test_bad_usage_exits_with_2(capsys, argv):
    assert main(["audit", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("labeldp audit: error: ")
    assert line.endswith("(see `labeldp audit --help`)")


@pytest.mark.parametrize("name", ["nowhere.json", "a\nb", "x" * 5000, "nul\0byte"])
def test_a_path_that_does_not_exist_is_bad_usage(tmp_path, capsys, name):
    path = str(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        audit_path(path)
    assert main(["audit", path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{path!a} does not exist: name a mechanism file" in captured.err


CENTERS = {"center_replay", "interval_products"}
"""Modules that only an audit of a center that was made of features loads."""
REPLAY = {"center_replay"}
"""The one module that imports code of the project: that of centers, to replay what follows from noised numbers."""
RECORDS = {"audit_data", "cell_predictions", "center_predictions", "center_rows", "class_columns",
           "class_predictions", "drawn_classes", "drawn_outputs", "marginal_predictions", "output_distribution",
           "parquet_bytes", "part_scan", "shard_columns", "tfrecord_examples"}  # fmt: skip
"""Modules that only an audit with --data, or a removal of records, loads."""
KEYS = {"signature_audit"}
"""Modules that load the library of signatures, for an audit with --signer alone."""


def test_the_auditor_imports_the_standard_library_and_where_it_must_numpy_and_pyarrow():
    folder = Path(inspect.getfile(documents)).parent
    modules = sorted(folder.rglob("*.py"))
    assert {module.stem for module in modules} >= RECORDS | CENTERS | KEYS
    for module in modules:
        records, centers = module.stem in RECORDS, module.stem in CENTERS
        names, tree = set(), ast.parse(module.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                # Relative imports may only name modules of the auditor, but for those of a replay.
                replayed = module.stem in REPLAY and (node.module or "").startswith("mechanisms.center.")
                assert node.level <= 1 or replayed
                names.update([] if node.level else [(node.module or "").split(".")[0]])
            elif isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
        allowed = {"numpy", "pyarrow"} if records else {"numpy"} if centers else set()
        keys = {"cryptography"} if module.stem in KEYS else set()
        assert names - allowed - keys <= set(sys.stdlib_module_names), module
        assert not keys & {(node.module or "").split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
        if not records:
            top = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and node.level}
            assert not top & (RECORDS if centers else RECORDS | CENTERS)


def test_data_of_a_mechanism_file_is_bad_usage(folder, capsys):
    assert main(["audit", str(folder / "mechanism.json"), "--data"]) == 2
    assert "--data needs a release" in capsys.readouterr().err


def test_data_is_not_read_where_another_check_fails(folder, capsys):
    (folder / "data" / "part-00000-of-00002.parquet").unlink()
    assert main(["audit", str(folder), "--data"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "data         not read, because other checks fail",
        "FAIL: data/part-00000-of-00002.parquet is missing",
    ]


def test_an_argument_cannot_forge_a_line(capsys):
    for argv in (["a", "b\nPASS"], ["--x\nPASS", "a"], ["nowhere\nPASS"]):
        assert main(["audit", *argv]) == 2
        captured = capsys.readouterr()
        assert "PASS" in captured.err
        assert not any(line.startswith("PASS") for line in captured.err.splitlines())


@pytest.mark.parametrize(("labels", "outputs"), [(5000, 20), (401, 401)])
def test_speed(tmp_path, labels, outputs):
    rng = random.Random(1)
    rows = [random_row(rng, outputs, 62) for _ in range(labels)]
    values = [0.1 * i for i in range(max(labels, outputs))]
    path = write(tmp_path / "m.json", valid_mechanism(rows, values[:labels], values[:outputs], 62))
    start = time.process_time()
    assert audit_path(path).problems == ()
    assert time.process_time() - start < 2
