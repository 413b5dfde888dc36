"""Checks of release.json: against the mechanism file, against itself, and against the data folder."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from labeldp.audit import manifest_audit
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.pipelines.publish import manifest

from tests.audit.mechanism_files import changed, write
from tests.audit.written_files import PRIOR

APPROXIMATE: dict[str, Any] = json.loads(Path(__file__).with_name("approximate.json").read_text())
RELEASE: dict[str, Any] = json.loads(Path(__file__).with_name("release.json").read_text())
FIRST, SECOND = RELEASE["shards"]
LOSSES: dict[str, float] = RELEASE["expected_loss"]
ONLY = "part-00000-of-00001.parquet"


def test_the_adjacency_is_that_of_a_release():
    assert manifest_audit.ADJACENCY == manifest.ADJACENCY


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("format", "labeldp-release-2", "release.json is not a release manifest"),
        ("adjacency", "records are protected", "release.adjacency is not that of label differential privacy"),
        ("epsilon", 0.94, "release.certified_epsilon is above release.epsilon"),
        ("epsilon", 0.9999999999999999, "the epsilons of center, prior and randomizer add up"),
        ("prior_epsilon", 0.26, "release.certified_epsilon is below the sum"),
        ("prior_epsilon", 0.3, "the epsilons of center, prior and randomizer add up"),
        ("prior_epsilon", 0.2, "release.prior_epsilon is not prior.epsilon of mechanism.json"),
        ("randomizer_epsilon", 0.7500000000000001, "the epsilons of center, prior and randomizer add up"),
        ("randomizer_epsilon", 0.6, "release.randomizer_epsilon is below certificate.epsilon"),
        ("certified_epsilon", 0.9431471805599453, "release.certified_epsilon is below the sum"),
        ("certified_epsilon", 1.0000000000000002, "release.certified_epsilon is above release.epsilon"),
        ("delta", 0.1, "release.delta is not delta of mechanism.json"),
        ("certified_delta", 0.1, "release.certified_delta is not certificate.delta"),
        ("mechanism_fingerprint", "0" * 64, "release.mechanism_fingerprint is not that of mechanism.json"),
        ("mechanism", "unbiased", "release.mechanism is not that of mechanism.json"),
        ("mechanism", "rr\nPASS", "release.mechanism is not a text of the form"),
        ("parameters", {"bias": 0.1}, "release.parameters are not those of mechanism.json"),
        ("choice", {"mechanism": "rr", "model_errors": {}}, "release.choice.mechanism is not unbiased or"),
        ("rounding", "randomized", "release.rounding is not that of mechanism.json"),
        ("domain", {"min": 0.0, "max": 2.0, "labels": 4}, "release.domain is not that of the labels"),
        ("domain", {"min": 0.0, "max": 3.0, "labels": 3}, "release.domain is not that of the labels"),
        ("max_bias", 0.0, "release.max_bias is not certificate.max_bias"),
        ("expected_loss", {"a\nPASS": True}, "release.expected_loss has members that labeldp does not write: a\\nPASS"),
        *(
            ("expected_loss", LOSSES | {name: value}, f"release.expected_loss.{name} is not that of the weights")
            for name, value in (
                ("squared", None),
                ("squared", 1e300),
                ("poisson", 1.0),
                ("absolute", LOSSES["absolute"] * (1 + 1e-6)),
            )
        ),
        ("input_digest", "x" * 64, "release.input_digest is not a text of the form"),
        ("records", 6, "release.shards do not add up to release.records"),
        ("records", 0, "release.shards is empty, or release.records is 0"),
    ],
)
def test_each_check_of_a_release(folder, key, value, problem):
    write(folder / "release.json", {**RELEASE, key: value})
    problems = audit_path(str(folder)).problems
    assert any(line.startswith(problem) for line in problems), problems
    assert all(line.isascii() and line.isprintable() for line in problems)


def test_missing_labels_are_those_of_the_histogram(folder):
    """A histogram of the labels that are there tells how many are missing; a public prior tells nothing of them."""
    mechanism = json.loads((folder / "mechanism.json").read_text())
    private = RELEASE | {
        "records_without_label": 0,
        "adjacency": manifest_audit.MISSING_ADJACENCY,
        "missing_label": 1.0,
    }
    problem = "release.missing_label is not prior.missing_label of mechanism.json"
    counted = RELEASE["prior_epsilon"]
    cases: list[tuple[dict[str, Any], float, float | None, tuple[str, ...]]] = [
        (private, counted, 1.0, ()),
        (private, counted, None, (problem,)),
        (private, counted, 2.0, (problem,)),
        (RELEASE, counted, 1.0, (problem,)),
        (RELEASE, counted, None, ()),
        (private, 0.0, None, ()),
    ]
    for release, epsilon, stated, problems in cases:
        found = mechanism["prior"] if epsilon else {"weights": PRIOR["weights"], "epsilon": 0.0}
        prior = found | ({} if stated is None else {"missing_label": stated})
        write(folder / "mechanism.json", mechanism | {"prior": prior})
        write(folder / "release.json", release | {"prior_epsilon": epsilon})
        assert audit_path(str(folder)).problems == problems


def test_the_shards_are_those_of_the_manifest(folder):
    assert audit_path(str(folder)).problems == ()
    (folder / "data" / SECOND).unlink()
    for name in ("c", "d\nPASS\u202e", ".index"):
        (folder / "data" / name).write_text("")
    assert audit_path(str(folder)).problems == (
        f"data/{SECOND} is missing",
        "data/.index is not one of release.shards",
        "data/c is not one of release.shards",
        "data/d\\nPASS\\u202e is not one of release.shards",
    )


def test_shards_in_folders_of_partitions(folder):
    names = [f"k={value}/{name}" for value in ("%2F\n", "__HIVE_DEFAULT_PARTITION__") for name in (FIRST, SECOND)]
    write(folder / "release.json", RELEASE | {"shards": dict(zip(names, (2, 1, 2, 0), strict=True))})
    for name in names:
        (folder / "data" / name).parent.mkdir(exist_ok=True)
        (folder / "data" / name).touch()
    for name in (FIRST, SECOND):
        (folder / "data" / name).unlink()
    assert audit_path(str(folder)).problems == ()
    (folder / "data" / "k=3").mkdir()
    (folder / "data" / "k=%2F\n" / "more").touch()
    (folder / "data" / "k=%2F\n" / ".hidden").touch()
    shutil.move(folder / "data" / "k=__HIVE_DEFAULT_PARTITION__", folder.parent / "elsewhere")
    (folder / "data" / "k=__HIVE_DEFAULT_PARTITION__").symlink_to(folder.parent / "elsewhere")
    # A link is found before anything is read.
    assert audit_path(str(folder)).problems == ("data/k=__HIVE_DEFAULT_PARTITION__ is not a regular file",)
    (folder / "data" / "k=__HIVE_DEFAULT_PARTITION__").unlink()
    assert audit_path(str(folder)).problems == (
        f"data/{names[2]} is missing",
        f"data/{names[3]} is missing",
        "data/k=%2F\\n/.hidden is not one of release.shards",
        "data/k=%2F\\n/more is not one of release.shards",
        "data/k=3 is not one of release.shards",
    )


def test_the_data_are_there(folder):
    for name in (FIRST, SECOND):
        (folder / "data" / name).unlink()
    (folder / "data").rmdir()
    for path in (folder, folder / "release.json"):
        assert audit_path(str(path)).problems == ("data/ is missing",)
    (folder / "data").write_text("no folder")
    assert audit_path(str(folder)).problems == ("data/ is missing",)


def test_shards_are_files(folder):
    (folder / "data" / FIRST).unlink()
    (folder / "data" / FIRST).mkdir()
    (folder / "data" / SECOND).unlink()
    os.mkfifo(folder / "data" / SECOND)
    # A pipe is found before anything is read.
    assert audit_path(str(folder)).problems == (f"data/{SECOND} is not a regular file",)
    (folder / "data" / SECOND).unlink()
    (folder / "data" / SECOND).mkdir()
    assert audit_path(str(folder)).problems == tuple(f"data/{name} is not a regular file" for name in (FIRST, SECOND))


@pytest.mark.parametrize(
    ("shards", "problem"),
    [
        ({}, "release.shards is empty"),
        ({FIRST: 0, SECOND: 6}, "release.shards do not add up to release.records"),
        ({FIRST: 5}, "release.shards are not all shards of one set"),
        ({FIRST: 2, "part-00001-of-00002.tfrecord": 3}, "release.shards are not all shards of one set"),
        ({FIRST: 2, "part-00002-of-00002.parquet": 3}, "release.shards are not all shards of one set"),
        ({FIRST: 2, "../../raw.parquet": 3}, "release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT: ../"),
        ({"\nPASS\n": 5}, "release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT: \\nPASS\\n"),
        ({f"{FIRST}\n": 2, SECOND: 3}, "release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT"),
        ({f"k=1/{FIRST}": 2, f"k=2/{SECOND}": 3}, "release.shards are not all shards of one set"),
        ({f"k=1/{ONLY}": 2, ONLY: 3}, "release.shards have folders of different columns"),
        ({f"k=1/{ONLY}": 2, f"l=1/{ONLY}": 3}, "release.shards have folders of different columns"),
        ({f"k=1/k=2/{ONLY}": 5}, "release.shards has two folders of one column: k=1/k=2/"),
        ({f"k=%ff/{ONLY}": 5}, "release.shards has a folder that is not URI-encoded UTF-8: k=%ff"),
        ({f"{RELEASE['label']}=1/{ONLY}": 5}, "release.shards have folders that are named by the label"),
        ({f"../{ONLY}": 5}, "release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT: ../"),
        ({f"k=1/../{ONLY}": 5}, "release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT: k=1/../"),
    ],
)
def test_the_manifest_lists_one_whole_set_of_shards(folder, shards, problem):
    write(folder / "release.json", changed(RELEASE, ("shards",), shards))
    audit = audit_path(str(folder))
    assert any(line.startswith(problem) for line in audit.problems), audit.problems
    assert "PASS" not in audit_report(audit).splitlines()


def test_sums_are_exact(folder):
    parts = {"prior_epsilon": 1e-17, "randomizer_epsilon": 1.0, "epsilon": 1.0}
    assert 1e-17 + 1.0 <= 1.0  # true in floating point, not exactly
    write(folder / "release.json", {**RELEASE, **parts})
    problem = "the epsilons of center, prior and randomizer add up to more than release.epsilon"
    assert problem in audit_path(str(folder)).problems


def test_a_release_must_own_up_to_its_delta(folder):
    prior = PRIOR | {"weights": [0.5, 0.5], "counts": [2, 3]}
    write(folder / "mechanism.json", APPROXIMATE | {"prior": prior, "rounding": "nearest"})
    release = {
        **RELEASE, "mechanism": "gaussian", "mechanism_fingerprint": APPROXIMATE["fingerprint"], "max_bias": 1.0,
        "domain": {"min": 0.0, "max": 1.0, "labels": 2}, "certified_delta": 0.375,
        "expected_loss": {"squared": 1.625, "absolute": 1.0, "poisson": 1.1983767335406181},
    }  # fmt: skip
    for delta, problem in ((0.5, ""), (0.374, "release.delta is not delta of mechanism.json")):
        write(folder / "release.json", {**release, "delta": delta})
        assert "; ".join(audit_path(str(folder)).problems) == problem
    for key in ("delta", "certified_delta"):
        write(
            folder / "release.json",
            {name: value for name, value in release.items() if name != key}
            | ({"delta": 0.5} if key != "delta" else {}),
        )
        assert audit_path(str(folder)).problems == (f"release lacks members that labeldp writes: {key}",)
