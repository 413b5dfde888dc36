"""Audit of releases of classes: correct ones pass, and each planted change of the files or of the records fails."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_mechanism import audit_mechanism
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.class_audit import class_statement_problems
from labeldp.audit.class_columns import ClassLabels
from labeldp.audit.documents import Members, RefusedDocument
from labeldp.audit.manifest_audit import warning_problems
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.release_warnings import release_warnings
from labeldp.mechanisms.analysis.utility import ClassCounts, ReleasedFacts
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.core.losses import ZERO_ONE
from labeldp.transforms.shards.shard_formats import compressed_file

from tests.audit.written_files import write_document, write_shard

RECORDS = 12_000
TEXTS = ("none", "cold", "flu", "covid, severe", "rare")
SHARES = (0.5, 0.25, 0.15, 0.09, 0.01)
RELEASES: dict[str, dict[str, Any]] = {
    "text": {"label": "ill", "output_format": "parquet", "num_shards": 2},
    "bytes": {"label": "ill", "output_format": "tfrecord", "mechanism": "rr_top_k", "compression": "gzip"},
    "integers": {"label": "grade", "label_classes": "1,2,-3", "output_format": "parquet"},
    "int64": {"label": "grade", "label_classes": "1,2,-3", "output_format": "tfrecord", "num_shards": 2},
    "booleans": {"label": "sold", "label_classes": "false,true", "output_format": "parquet"},
    "truth": {"label": "sold", "label_classes": "true,false", "output_format": "tfrecord"},
    "floats": {"label": "visits", "label_classes": "0,1,2", "output_format": "tfrecord"},
    "doubles": {"label": "visits", "label_classes": "0,1,2", "output_format": "parquet", "mechanism": "rr_top_k"},
    "units": {"label": "ill", "output_format": "parquet", "unit_column": "user", "max_records_per_unit": 3},
}
LABELS = {name: flags["label"] for name, flags in RELEASES.items()}


@pytest.fixture(scope="session")
def classes_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12,000 records with classes of several types; -3 and 4 are grades, of which 4 is not listed."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("classes")
    columns = {
        "feature": np.arange(RECORDS) % 97,
        "user": np.arange(RECORDS) % 2_000,
        "ill": pa.array(np.array(TEXTS)[rng.choice(5, RECORDS, p=SHARES)].tolist()),
        "grade": pa.array(rng.choice([1, 2, -3, 4], RECORDS), pa.int16()),
        "sold": rng.random(RECORDS) < 0.2,
        "visits": rng.choice([0.0, 1.0, 2.0, np.nan], RECORDS, p=[0.7, 0.2, 0.05, 0.05]),
        "weeks": rng.integers(0, 5, RECORDS),
    }
    pq.write_table(pa.table(columns), folder / "log.parquet")
    (folder / "classes.txt").write_text("".join(f"{value}\n" for value in TEXTS))
    return folder


@pytest.fixture(scope="session")
def flags(classes_log: Path, key_file: Path) -> dict[str, Any]:
    return {
        "input": classes_log / "log.parquet", "input_format": "parquet", "label_classes": classes_log / "classes.txt",
        "epsilon": 1, "mechanism": "rr", "prior_epsilon": 0.03, "noise_key_file": key_file,
        "max_unusable_fraction": 0.2,
    }  # fmt: skip


@pytest.fixture(scope="session")
def released(classes_log: Path, flags: dict[str, Any], invoke: Any, command: Any) -> Callable[[str], Path]:
    """Function (name in RELEASES) -> the output folder, made once."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")

    def make(name: str) -> Path:
        folder = classes_log / name
        if not folder.exists():
            invoke(command("privatize", flags | {"output": folder} | RELEASES[name])).ok()
        return folder

    return make


@pytest.fixture
def copied(released: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Function (name in RELEASES) -> a copy of the release, which a test may damage."""
    return lambda name: shutil.copytree(released(name), tmp_path / name)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def problems(folder: Path, data: bool = False) -> tuple[str, ...]:
    return audit_path(str(folder), data).problems


def shards(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "data").iterdir() if not path.name.startswith("."))


# Correct releases.


@pytest.mark.parametrize("name", RELEASES)
def test_correct_releases_pass(name: str, released: Callable[[str], Path]) -> None:
    audit = audit_path(str(released(name)), data=True)
    assert audit.problems == ()
    data, *_, distribution = audit.data_lines
    assert data.startswith(f"data         {read(released(name), 'release.json')['records']} records in ")
    assert "every label, a class in one type and spelling, is an output of the mechanism" in data
    assert distribution.startswith("distribution ")
    assert "agree with the channel and the noised histogram" in distribution
    assert audit_path(str(released(name) / "mechanism.json")).problems == ()


def test_the_report_speaks_of_classes(released: Callable[[str], Path]) -> None:
    lines = audit_report(audit_path(str(released("bytes")))).splitlines()
    assert lines[0].startswith("mechanism    rr_top_k: 5 classes, ")
    assert "classes      'none', 'cold', 'flu', 'covid, severe', 'rare'; all other values count as 'none'" in lines
    assert not any(line.startswith("bias") for line in lines)


def test_several_labels_some_of_classes(
    flags: dict[str, Any], classes_log: Path, tmp_path: Path, invoke: Any, command: Any
) -> None:
    more = {
        "label": "ill,weeks", "label_classes": f"ill={classes_log / 'classes.txt'}", "label_min": 0,
        "label_max": 4, "label_step": 1, "output": tmp_path / "both", "prior_epsilon": None,
    }  # fmt: skip
    invoke(command("privatize", flags | more)).ok()
    audit = audit_path(str(tmp_path / "both"), data=True)
    assert audit.problems == ()
    assert [bool(part.classes_line) for _, part in audit.parts] == [True, False]
    table = pq.read_table(shards(tmp_path / "both")[0])
    place = table.schema.get_field_index("ill")
    changed = table.set_column(place, "ill", pa.array(["none ", *table["ill"].to_pylist()[1:]]))
    write_shard(changed, shards(tmp_path / "both")[0])
    (problem,) = problems(tmp_path / "both", data=True)
    assert problem.startswith("label ill: data/part-00000-of-00001.parquet has 1 labels that are no class")


def test_labels_of_a_mechanism_file(
    flags: dict[str, Any], tmp_path: Path, invoke: Any, command: Any, released: Callable[[str], Path]
) -> None:
    fitted = {"mechanism_file": tmp_path / "mechanism.json", "label": "ill"}
    invoke(command("fit", flags | fitted)).ok()
    kept = {name: flags[name] for name in ("input", "input_format", "noise_key_file")}
    invoke(command("apply", kept | fitted | {"output": tmp_path / "applied"})).ok()
    audit = audit_path(str(tmp_path / "applied"), data=True)
    assert audit.problems == ()
    assert audit.data_lines[-1].startswith("distribution ")
    # The noise of a histogram is bound to the list: with another one, it is not that of these records.
    for name in ("mechanism.json", "release.json"):
        document = read(tmp_path / "applied", name)
        document["classes"]["other"] = 1
        write_document(tmp_path / "applied" / name, document)
    audit = audit_path(str(tmp_path / "applied"), data=True)
    assert audit.problems == ()
    assert audit.data_lines[-1].startswith("distribution not checked: the prior was counted from other records")


# Changed files.


def changed_documents(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    mechanism, release = (read(folder, name) for name in ("mechanism.json", "release.json"))
    change(mechanism, release)
    write_document(folder / "mechanism.json", mechanism)
    write_document(folder / "release.json", release)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("classes", ..., "release.classes are not those of mechanism.json"),
        ("classes", {"values": ["none", "cold"], "other": 0}, "release.classes are not those of mechanism.json"),
        ("classes", {"values": list(TEXTS), "other": 0.0}, "release.classes are not those of mechanism.json"),
        ("classes", {"values": list(TEXTS), "other": False}, "release.classes are not those of mechanism.json"),
        ("classes", {"values": list(TEXTS), "other": 1}, "release.classes are not those of mechanism.json"),
        ("max_bias", 0.0, "release.max_bias is there, but places of classes have no bias"),
        ("max_bias", None, "release.max_bias is there, but places of classes have no bias"),
        ("loss", "squared", "release.loss is not zero_one, that of classes"),
        ("expected_loss", {}, "release.expected_loss does not have exactly zero_one"),
        ("expected_loss", {"squared": 1.0}, "release.expected_loss does not have exactly zero_one"),
        ("expected_loss", {"zero_one": 0.5}, "release.expected_loss.zero_one is not that of the weights"),
        ("expected_loss", {"zero_one": None}, "release.expected_loss.zero_one is not a finite float"),
        ("warnings", [], "release.warnings lacks label_error"),
        ("warnings", ["lost_classes", "label_error"], "release.warnings has lost_classes"),
        ("warnings", ["label_error", "high_end"], "release.warnings has unknown names"),
        ("declared_grid", {"labels": 9, "epsilon": 1}, "release.declared_grid is not that of mechanism.json"),
        ("domain", {"min": 0.0, "max": 5.0, "labels": 6}, "release.domain is not that of the labels"),
    ],
)
def test_a_changed_manifest_fails(key: str, value: Any, problem: str, copied: Callable[[str], Path]) -> None:
    folder = copied("text")

    def change(mechanism: dict[str, Any], release: dict[str, Any]) -> None:
        release.pop(key, None)
        if value is not ...:
            release[key] = value

    changed_documents(folder, change)
    assert any(found.startswith(problem) for found in problems(folder)), problems(folder)


def test_the_loss_may_differ_in_its_last_digits(copied: Callable[[str], Path]) -> None:
    folder = copied("text")

    def change(mechanism: dict[str, Any], release: dict[str, Any]) -> None:
        release["expected_loss"]["zero_one"] *= 1 + 1e-13

    changed_documents(folder, change)
    assert problems(folder) == ()


def test_a_release_of_numbers_states_no_classes_and_a_bias(folder: Path) -> None:
    def change(mechanism: dict[str, Any], release: dict[str, Any]) -> None:
        release["classes"] = {"values": ["a", "b", "c"], "other": 0}
        del release["max_bias"]

    changed_documents(folder, change)
    assert problems(folder) == ("release.max_bias is missing",)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ({"values": ["a"], "other": 0}, "classes.values are not 2 to 1000 texts"),
        ({"values": [f"{i}" for i in range(1001)], "other": 0}, "classes.values are not 2 to 1000 texts"),
        ({"values": ["a", "b", "a"], "other": 0}, "classes.values has a class twice"),
        ({"values": ["a", "b", "\ud800"], "other": 0}, "classes.values has a class that is not Unicode text"),
        ({"values": ["a", "b", "c"], "other": 3}, "classes.other is not the place of a class"),
        ({"values": ["a", "b", "c", "d"], "other": 0}, "labels are not the places of the classes"),
    ],
)
def test_malformed_classes_are_refused(member: Any, problem: str) -> None:
    (found,) = audit_mechanism(document_of("rr", [1, 1, 1]) | {"classes": member}).problems
    assert found.startswith(problem)


def document_of(name: str, weights: list[float], epsilon: float = 1.0, **more: Any) -> dict[str, Any]:
    """A mechanism file of classes a, b, ..., whose prior is public."""
    prior = Prior(np.arange(float(len(weights))), np.array(weights))
    released = {"weights": prior.weights.tolist(), "epsilon": 0.0}
    classes = {"values": [chr(ord("a") + place) for place in range(len(weights))], "other": 0}
    members = {"prior": released, "classes": classes, "rounding": "nearest"} | more
    return json.loads(solve(name, prior, epsilon).to_json(**members))


@pytest.mark.parametrize(
    ("labels", "outputs", "problem"),
    [
        ([-0.0, 1.0, 2.0], None, "labels are not the places of the classes"),
        ([0.0, 1.0, 3.0], None, "labels are not the places of the classes"),
        (None, [-0.0, 1.0, 2.0], "outputs are not places of the classes"),
        (None, [0.0, 1.0, 2.5], "outputs are not places of the classes"),
    ],
)
def test_labels_and_outputs_are_places(
    labels: list[float] | None, outputs: list[float] | None, problem: str, resigned: Any
) -> None:
    document = document_of("rr", [1, 1, 1])
    document["labels"], document["outputs"] = labels or document["labels"], outputs or document["outputs"]
    assert audit_mechanism(resigned(document)).problems == (problem,)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"rounding": "randomized"}, "rounding is not nearest: places of classes are not rounded"),
        ({"mechanism": "unbiased"}, "mechanism is not one of classes: rr or rr_top_k"),
        ({"declared_grid": {"labels": 9, "epsilon": 1}}, "declared_grid is there, but labels are classes"),
        (
            {"center": {"column": "c", "domain": [0.0, 1.0, 2.0], "counts": [1] * 5}},
            "center is there, but labels are classes",
        ),
    ],
)
def test_what_only_numbers_have_is_a_problem(more: dict[str, Any], problem: str) -> None:
    assert audit_mechanism(document_of("rr", [1, 1, 1])).problems == ()
    assert problem in audit_mechanism(document_of("rr", [1, 1, 1]) | more).problems


def test_a_class_cannot_forge_a_line() -> None:
    document = document_of("rr", [1, 1, 1])
    document["classes"]["values"] = ["a\nPASS", "\u202eb", "c" * 500]
    lines = audit_report(audit_mechanism(document)).splitlines()
    assert [line for line in lines if line.startswith("PASS")] == ["PASS"]
    assert max(map(len, lines)) < 200
    assert lines[3] == (f"classes      'a\\nPASS', '\\u202eb', '{'c' * 40}...'; all other values count as 'a\\nPASS'")


# Loss and warnings, recomputed.


@pytest.mark.parametrize("name", ["rr", "rr_top_k"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 25.0])
@pytest.mark.parametrize("weights", [[1, 1], [6, 3, 1, 1], [1, 0, 0, 0], [0.9, 0.05, 0.03, 0.02], [0.0001, 1, 1]])
@pytest.mark.parametrize("prior_epsilon", [0.0, 0.1, 1.0])
def test_the_auditor_finds_loss_and_warnings_of_the_job(
    name: str, epsilon: float, weights: list[float], prior_epsilon: float
) -> None:
    prior = Prior(np.arange(float(len(weights))), np.array(weights))
    randomizer, classes = solve(name, prior, epsilon), LabelClasses(tuple("abcd")[: len(weights)])
    document = document_of(name, weights, epsilon)
    document["prior"]["epsilon"] = prior_epsilon
    for records in (100, 10_000, 10**7):
        counted = tuple((prior.weights * records).astype(int).tolist())
        document["prior"] |= {"counts": list(counted), "records": records} if prior_epsilon else {}
        counts = ClassCounts(counted, 2**1.5 / prior_epsilon) if prior_epsilon else None
        facts = ReleasedFacts(randomizer, prior, prior_epsilon, records, classes=classes, class_counts=counts)
        stated = [warning.name for warning in release_warnings(facts)]
        stated_loss = {"zero_one": randomizer.expected_loss(prior, ZERO_ONE)}
        release = Members({
            "records": records, "prior_epsilon": prior_epsilon, "warnings": stated, "classes": document["classes"],
            "expected_loss": stated_loss,
        }, "release")  # fmt: skip
        assert list(class_statement_problems(release, document)) == []
        assert list(warning_problems(release, document)) == []
        for warning in ("unseen_classes", "lost_classes", "label_error"):
            if warning in stated:
                others = [each for each in stated if each != warning]
                expected = f"release.warnings lacks {warning}"
            else:
                names = ("unseen_classes", "lost_classes", "label_error")
                others = [each for each in names if each in (*stated, warning)]
                expected = f"release.warnings has {warning}, which the released facts do not give"
            changed = Members({**release, "warnings": others}, "release")
            assert list(warning_problems(changed, document)) == [expected]


@pytest.mark.parametrize("around", [{"center": "none", "prior_epsilon": 1}, {}])
def test_misspelled_classes_are_named(
    around: dict[str, Any], flags: dict[str, Any], tmp_path: Path, invoke: Any, command: Any
) -> None:
    folder = tmp_path / "misspelled"
    classes = {"label": "ill", "label_classes": "None, cold,other", "other_class": "other", "epsilon": 2}
    outcome = invoke(command("privatize", flags | classes | around | {"output": folder})).ok()
    assert "warning: 'None', ' cold': by the released counts" in outcome.err
    assert read(folder, "release.json")["warnings"] == ["unseen_classes"]
    assert problems(folder, data=True) == ()
    changed_documents(folder, lambda mechanism, release: release.update(warnings=[]))
    assert problems(folder) == ("release.warnings lacks unseen_classes",)


# Changed records.


def change_column(folder: Path, label: str, change: Callable[[pa.Array], pa.Array], only: int = 0) -> None:
    """Replaces the label column of one Parquet shard."""
    path = shards(folder)[only]
    table = pq.read_table(path)
    column = change(table[label].combine_chunks())
    write_shard(table.set_column(table.schema.get_field_index(label), label, column), path)


def one(value: Any) -> Callable[[pa.Array], pa.Array]:
    """Function that replaces the label of the third record."""
    return lambda column: pa.array([*column.to_pylist()[:2], value, *column.to_pylist()[3:]], column.type)


@pytest.mark.parametrize("value", ["none ", " none", "None", "none\0", "healthy", "", "0", "n\u043ene"])
def test_a_text_that_is_no_class(value: str, copied: Callable[[str], Path]) -> None:
    folder = copied("text")
    change_column(folder, "ill", one(value))
    assert problems(folder, data=True) == (
        "data/part-00000-of-00002.parquet has 1 labels that are no class that the mechanism releases, first in "
        "record 2",
    )


@pytest.mark.parametrize(
    ("name", "value"), [("integers", 0), ("integers", 4), ("doubles", -0.0), ("doubles", np.nan), ("doubles", 1.5)]
)
def test_a_number_that_is_no_class(name: str, value: float, copied: Callable[[str], Path]) -> None:
    folder = copied(name)
    change_column(folder, LABELS[name], one(value))
    (problem,) = problems(folder, data=True)
    assert problem.endswith("has 1 labels that are no class that the mechanism releases, first in record 2")


def test_a_class_that_is_never_released(copied: Callable[[str], Path]) -> None:
    folder = copied("doubles")
    lost = min({0, 1, 2} - {int(output) for output in read(folder, "mechanism.json")["outputs"]})
    change_column(folder, "visits", one(float(lost)))
    (problem,) = problems(folder, data=True)
    assert problem.endswith("has 1 labels that are no class that the mechanism releases, first in record 2")


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("text", one(None), "has labels that are missing"),
        ("text", lambda column: pa.array([[value] for value in column.to_pylist()]), "labels have several types"),
        ("text", lambda column: column.cast(pa.large_string()), "labels have several types: large_string, string"),
        ("text", lambda column: column.cast(pa.binary()), "labels have several types: binary, string"),
        (
            "text",
            lambda column: pa.array([["cold", "flu"], *([value] for value in column.to_pylist()[1:])]),
            "has a record whose label is not one value",
        ),
        ("text", lambda column: column.dictionary_encode(), "has labels of a type that does not hold the classes"),
        ("text", lambda column: pa.nulls(len(column)), "has labels that are missing"),
        ("text", lambda column: pa.array([1.0] * len(column)), "has labels of a type that does not hold the classes"),
        ("integers", one(None), "has labels that are missing"),
        ("integers", lambda column: pa.array([True] * len(column)), "has labels of a type that does not hold"),
        ("booleans", one(None), "has labels that are missing"),
        ("booleans", lambda column: column.cast(pa.int64()), "has labels of a type that does not hold the classes"),
        ("doubles", one(None), "has labels that are missing"),
    ],
)
def test_other_columns_of_labels(
    name: str, change: Callable[[pa.Array], pa.Array], problem: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(name)
    change_column(folder, LABELS[name], change)
    assert any(problem in found for found in problems(folder, data=True)), problems(folder, data=True)


def change_record(folder: Path, change: Callable[[bytes], bytes]) -> None:
    """Replaces the third record of the first TFRecord shard, with checksums to match."""
    import gzip

    import google_crc32c

    def masked(text: bytes) -> bytes:
        crc = google_crc32c.value(text)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)

    path = shards(folder)[0]
    zipped = path.suffix == ".gz"
    content = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    records, place = [], 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        records.append(content[place + 12 : place + 12 + length])
        place += length + 16
    records[2] = change(records[2])
    lengths = [struct.pack("<Q", len(record)) for record in records]
    framed = b"".join(
        length + masked(length) + record + masked(record) for length, record in zip(lengths, records, strict=True)
    )
    with path.open("wb") as file, compressed_file(file) if zipped else file as written:
        written.write(framed)


def feature_of(kind: int, content: bytes) -> bytes:
    """A Feature of one list, whose only field has this content."""
    return bytes([kind << 3 | 2, len(content)]) + content


def relabelled(label: str, feature: bytes | None) -> Callable[[bytes], bytes]:
    """Function that replaces the Feature of a label in a record of the project, or removes its entry."""

    def change(record: bytes) -> bytes:
        key = b"\x0a" + bytes([len(label)]) + label.encode()
        start = record.index(key)
        old = record[start - 1] + start
        entry = b"" if feature is None else key + b"\x12" + bytes([len(feature)]) + feature
        entry = entry and b"\x0a" + bytes([len(entry)]) + entry
        content = record[: start - 2] + entry + record[old:]
        # The field `features` of the Example holds all entries; lengths have one byte here.
        return b"\x0a" + bytes([len(content) - 2]) + content[2:]

    return change


def field(content: bytes) -> bytes:
    return b"\x0a" + bytes([len(content)]) + content


@pytest.mark.parametrize("name", ["bytes", "int64", "truth", "floats"])
def test_the_helper_changes_records_only(name: str, copied: Callable[[str], Path]) -> None:
    folder = copied(name)
    change_record(folder, lambda record: record)
    assert problems(folder, data=True) == ()


@pytest.mark.parametrize(
    ("name", "feature", "accepted"),
    [
        ("bytes", feature_of(1, field(b"cold")), True),
        ("bytes", feature_of(1, field(b"cold ")), False),
        ("bytes", feature_of(1, field(b"cold") + field(b"flu")), False),
        ("bytes", feature_of(1, field(b"")), False),
        ("bytes", feature_of(1, b""), False),
        ("bytes", b"", False),
        ("bytes", None, False),
        ("bytes", feature_of(3, field(b"\x01")), False),
        ("int64", feature_of(3, field(b"\x02")), True),
        ("int64", feature_of(3, field(b"\xfd" + b"\xff" * 8 + b"\x01")), True),
        ("int64", feature_of(3, field(b"\x82\x00")), False),
        ("int64", feature_of(3, b"\x08\x02"), False),
        ("int64", feature_of(3, field(b"\x02") + b"\x0a\x00"), False),
        ("int64", feature_of(3, field(b"\x01\x02")), False),
        ("int64", feature_of(3, field(b"\x04")), False),
        ("truth", feature_of(3, field(b"\x01")), True),
        ("truth", feature_of(3, field(b"\x02")), False),
        ("floats", feature_of(2, field(struct.pack("<f", 1.0))), True),
        ("floats", feature_of(2, field(struct.pack("<f", -0.0))), False),
        ("floats", feature_of(2, field(struct.pack("<f", np.nan))), False),
        ("floats", feature_of(2, b"\x0d" + struct.pack("<f", 1.0)), False),
    ],
)
def test_labels_of_records(name: str, feature: bytes | None, accepted: bool, copied: Callable[[str], Path]) -> None:
    folder = copied(name)
    change_record(folder, relabelled(LABELS[name], feature))
    found = problems(folder, data=True)
    assert accepted == (not found)
    if not accepted:
        assert found[0].endswith("has 1 labels that are no class that the mechanism releases, first in record 2")


@pytest.mark.parametrize(
    ("name", "feature", "types"),
    [
        ("int64", feature_of(1, field(b"2")), "int64, bytes"),
        ("int64", feature_of(2, field(struct.pack("<f", 2.0))), "int64, float"),
        ("truth", feature_of(1, field(b"true")), "int64, bytes"),
        ("floats", feature_of(3, field(b"\x01")), "float, int64"),
    ],
)
def test_a_label_of_another_kind(name: str, feature: bytes, types: str, copied: Callable[[str], Path]) -> None:
    folder = copied(name)
    change_record(folder, relabelled(LABELS[name], feature))
    assert problems(folder, data=True) == (f"labels have several types: {types}",)


def test_a_label_in_two_entries(copied: Callable[[str], Path]) -> None:
    folder = copied("bytes")

    def change(record: bytes) -> bytes:
        entry = field(field(b"ill") + b"\x12" + field(feature_of(1, field(b"cold")))[1:])
        size = record[1] + len(entry)
        return b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + record[2:] + entry

    change_record(folder, change)
    (problem,) = problems(folder, data=True)
    assert problem.endswith("record 2 has bytes that readers of tf.Examples do not see")


@pytest.mark.parametrize("name", ["text", "booleans", "units"])
def test_labels_that_were_not_drawn(name: str, copied: Callable[[str], Path]) -> None:
    folder, label = copied(name), LABELS[name]
    for place in range(len(shards(folder))):
        change_column(folder, label, lambda column: pa.array([column[0].as_py()] * len(column), column.type), place)
    (problem,) = problems(folder, data=True)
    assert problem.startswith("the labels were not drawn from the channel for the noised histogram")


# Types of columns.


@pytest.mark.parametrize(
    ("values", "column", "places"),
    [
        ("0,1,7", pa.array([7, 0], pa.uint8()), [2, 0]),
        ("0,1,7", pa.array([7, 0, -0.0], pa.float32()), [2, 0, None]),
        ("0,1,7", pa.array(np.array([7, 0, -0.0, 2], np.float16)), [2, 0, None, None]),
        ("0,1,7", pa.array([b"7", b"07"]), [2, None]),
        ("0,1,7", pa.array([["7"], ["1"]], pa.large_list(pa.string())), [2, 1]),
        ("true,false", pa.array([True, False]), [0, 1]),
        ("1,0", pa.array([True, False]), [0, 1]),
        ("16777216,16777217", pa.array([16777217.0]), [1]),
        ("16777216,16777217", pa.array([16777216.0], pa.float32()), "does not hold"),
        ("0,70000", pa.array(np.array([0], np.float16)), "does not hold"),
        ("0,01", pa.array([0]), "does not hold"),
        ("0,-0", pa.array([0]), "does not hold"),
        ("0,--5", pa.array([0]), "does not hold"),
        ("0,9223372036854775808", pa.array([0], pa.uint64()), "does not hold"),
        ("0,\u0663", pa.array([0]), "does not hold"),
        ("0,1", pa.array([1], pa.decimal128(5, 0)), "does not hold"),
        ("0,1", pa.array([1], pa.date32()), "does not hold"),
        ("0,1,2", pa.array([True]), "does not hold"),
        ("0,true", pa.array([True]), [1]),
    ],
)
def test_classes_of_columns(values: str, column: pa.Array, places: list[int | None] | str) -> None:
    labels = ClassLabels(values.split(","))
    if isinstance(places, str):
        with pytest.raises(RefusedDocument, match=places):
            labels.of_column(column)
        return
    found = labels.of_column(column).tolist()
    assert [None if np.isnan(place) else int(place) for place in found] == places


@pytest.mark.parametrize("values", [("a", "b" * 300, "\u00e9\u4e2d"), ("-1", "0", "1", "300"), ("true", "false")])
def test_the_spelling_in_records_is_that_of_tensorflow(values: tuple[str, ...]) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def places(**features: Any) -> list[float]:
        feature = tf.train.Feature(**features)
        return ClassLabels(values).of_messages([feature.SerializeToString(deterministic=True)]).tolist()

    for place, value in enumerate(values):
        assert places(bytes_list=tf.train.BytesList(value=[value.encode()])) == [place]
        if value.lstrip("-").isdecimal():
            assert places(int64_list=tf.train.Int64List(value=[int(value)])) == [place]
            assert places(float_list=tf.train.FloatList(value=[float(value)])) == [place]
        if values == ("true", "false"):
            assert places(int64_list=tf.train.Int64List(value=[1 - place])) == [place]
