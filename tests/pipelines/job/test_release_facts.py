"""Contents and statements of a release, against its log and the row of its case: records, types, labels, budget, facts.

The cases are those of `release_cases`. Other laws of them are in test_release_laws.
"""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.center.class_model import ClassModel

from tests.false_alarms import FALSE_ALARM, share_bound
from tests.gallery import Base
from tests.release_cases import CASES, TABLES, UNLISTED, Case, completed, over, table_of, write_files

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")


def member(document: Any, path: str) -> Any:
    """Value of a member, such as center.missing; None if there is none."""
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def stated(folder: Path, label: str = "") -> tuple[Any, Any]:
    """Manifest and mechanism file of a release, or of one of its labels."""
    folder = folder / "labels" / label if (folder / "labels").exists() else folder
    return json.loads((folder / "release.json").read_text()), json.loads((folder / "mechanism.json").read_text())


def plain(value: Any) -> Any:
    """A value as every format holds it: lists of one as their value, text, numbers in single precision."""
    if isinstance(value, list) and len(value) < 2:
        value = value[0] if value else None
    if value == "":  # A missing text of a CSV file.
        return None
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return None if value != value else float(np.float32(value))
    return value.decode() if isinstance(value, bytes) else value


def records_of(folder: Path) -> dict[str, list[Any]]:
    """Columns of all records, in the order of the shards."""
    records: list[dict[str, Any]] = []
    for path in sorted(path for path in (folder / "data").rglob("*") if path.is_file()):
        if ".parquet" in path.suffixes:
            records += pq.ParquetFile(path).read().to_pylist()
            continue
        for record in tf.data.TFRecordDataset(str(path), "GZIP" if path.suffix == ".gz" else "").as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            records.append({name: list(getattr(one, one.WhichOneof("kind")).value)
                            for name, one in features.items() if one.WhichOneof("kind")})  # fmt: skip
    names = {name: None for record in records for name in record}
    return {name: [plain(record.get(name)) for record in records] for name in names}


def usable(case: Case, table: pa.Table) -> np.ndarray:
    """Records that have all labels, or a label that stands for them."""
    lacking = [[plain(value) is None for value in table[label].to_pylist()] for label in case.labels]
    return np.full(len(table), True) if "missing_label" in case.flags else ~np.any(lacking, axis=0)


@over(CASES)
def test_the_records_are_those_of_the_log(name: str, base: Any) -> None:
    """Each once and in their order, unless they are shuffled, with every other column as it was."""
    one: Base = base(name)
    flags, table = one.flags, table_of(one.case)
    released, manifest = records_of(one.folder), json.loads((one.folder / "release.json").read_text())
    kept = usable(one.case, table)
    lacking, ids = int((~kept).sum()), np.array(table["id"].to_pylist())
    if "unit_column" in flags:
        most, users = flags["max_records_per_unit"], np.array(table["user"].to_pylist(), object)
        named = kept & np.array([user is not None for user in users])
        counts = Counter(users[named].tolist())
        unit = {"column": "user", "max_records": most, "over_limit": "drop", "units": len(counts)}
        unit["records_without_unit"] = int((kept & ~named).sum())
        unit["records_left_out"] = sum(max(0, count - most) for count in counts.values())
        stating = (
            manifest
            if "unit" in manifest and "units" in manifest["unit"]
            else stated(one.folder, one.case.labels[0])[0]
        )
        assert {key: stating["unit"][key] for key in unit} == unit
        bounded = Counter(user for user in released["user"])
        assert bounded == Counter({user: min(count, most) for user, count in counts.items()})
        kept &= np.isin(ids, released["id"])
    expected = ids[kept].tolist()
    assert (sorted(released["id"]) if flags.get("shuffle") else released["id"]) == expected
    assert (manifest["records"], manifest["records_without_label"]) == (len(expected), lacking)
    shards = manifest.get("shards") or stated(one.folder, one.case.labels[0])[0]["shards"]
    assert sum(shards.values()) == len(expected)
    letters = [json.loads(line) for path in one.folder.glob("dead_letters*") for line in path.read_text().splitlines()]
    assert {(each["stage"], each["error"]) for each in letters} <= {("privatize", "unusable label")}
    assert len({(each["source"], each["row"]) for each in letters}) == len(letters) == lacking
    if one.case.format == "parquet" and one.case.log in TABLES and "where" not in flags:
        assert sorted(each["row"] for each in letters) == np.flatnonzero(~usable(one.case, table)).tolist()
    left_out = (flags.get("leave_out") or "").split(",")
    order = np.argsort(released["id"]) if flags.get("shuffle") else np.arange(len(expected))
    for column in table.column_names:
        if column in left_out:
            assert column not in released
        elif column not in one.case.labels:
            wanted = [plain(value) for value in table[column].filter(pa.array(kept)).to_pylist()]
            assert [released[column][place] for place in order] == wanted, column


@over([name for name, case in CASES.items() if case.format != "tfrecord"])
def test_columns_keep_their_types_and_labels_of_numbers_are_float64(name: str, base: Any) -> None:
    """Classes have the type of their column; CSV files have one type of integers."""
    one: Base = base(name)
    table = table_of(one.case)
    manifest = json.loads((one.folder / "release.json").read_text())
    classes = one.flags.get("label_classes") is not None
    for path in (one.folder / "data").rglob("*.parquet"):
        schema = pq.read_schema(path)
        assert [column["name"] for column in manifest["output"]["columns"]] == schema.names
        for field in table.schema:
            numbers = field.name in one.case.labels and not (classes and field.name == one.case.labels[-1])
            if field.name in schema.names:
                assert schema.field(field.name).type == (pa.float64() if numbers else field.type), field.name


@over(CASES)
def test_the_parts_of_the_budget_add_up_to_at_most_epsilon(name: str, base: Any) -> None:
    """And to almost all of it. The ledger is charged for their sum, which is that of a unit."""
    one: Base = base(name)
    whole, most = json.loads((one.folder / "release.json").read_text()), one.flags.get("max_records_per_unit", 1)
    total = certified = Fraction(0)
    for label in one.case.labels:
        manifest, mechanism = stated(one.folder, label)
        parts = [Fraction(manifest.get(f"{part}_epsilon", 0)) for part in ("center", "prior", "randomizer")]
        spent = sum(parts[:2]) + Fraction(mechanism.get("certificate", {}).get("epsilon", 0))
        assert most * spent <= Fraction(manifest["certified_epsilon"]) <= Fraction(manifest["epsilon"])
        if most > 1:
            assert spent <= Fraction(manifest["unit"]["record_epsilon"])
        total, certified = total + most * sum(parts), certified + most * spent
    asked = Fraction(float(one.flags["epsilon"]))
    assert asked * Fraction(99, 100) < total <= Fraction(whole["epsilon"]) == asked
    assert certified <= Fraction(whole["certified_epsilon"]) <= asked
    run = json.loads(one.ledger.read_text().splitlines()[0])
    charged = sum({charge["release"]: Fraction(charge["epsilon"]) for charge in run["charges"]}.values())
    assert certified <= charged <= asked
    unit = {"column": "user", "max_records": most} if most > 1 else None
    assert (run["label"], run["adjacency"]) == (",".join(one.case.labels), "unit" if unit else "label")
    assert run.get("unit") == unit


@over([name for name, case in CASES.items() if case.flags.get("mechanism") in ("rr", "unbiased", "debiased_rr")])
def test_labels_are_drawn_with_the_certified_probabilities(name: str, base: Any, mechanism_of: Any) -> None:
    """Randomized response keeps a class so often; unbiased labels, or clipped residuals, are right on average."""
    one: Base = base(name)
    label, table = one.case.labels[-1], completed(one.case, table_of(one.case))
    released, true = records_of(one.folder), dict(zip(table["id"].to_pylist(), table[label].to_pylist(), strict=True))
    wanted = [plain(true[record]) for record in released["id"]]
    manifest, document = stated(one.folder, label)
    _, outputs, probabilities = mechanism_of(one.folder / "labels" / label if len(one.case.labels) > 1 else one.folder)
    if manifest.get("classes") and document["mechanism"] == "rr":
        kept = probabilities[0].max()
        found = np.mean([drawn == value for drawn, value in zip(released[label], wanted, strict=True)])
        assert abs(found - kept) <= share_bound(np.full(len(wanted), kept))
    elif document["certificate"]["max_bias"] < 1e-9:
        spread = (outputs[-1] - outputs[0]) * np.sqrt(np.log(2 / FALSE_ALARM) / (2 * len(wanted)))
        domain, center = manifest["domain"], manifest.get("center")
        low, step = domain["min"], (domain["max"] - domain["min"]) / (domain["labels"] - 1)
        wanted = np.clip(np.array(wanted, float), low, domain["max"])
        if manifest["rounding"] == "nearest":
            grid = np.array(document["labels"])
            wanted = grid[np.abs(wanted[:, None] - grid).argmin(axis=1)]
        if center:
            column = released[center["column"]]
            given = np.array([value if isinstance(value, int | float) else np.nan for value in column], float)
            places = np.clip(np.floor((given - low) / step + 0.5), 0, domain["labels"] - 1)
            centers = low + step * np.where(np.isfinite(given), places, (domain["labels"] - 1) // 2)
            wanted = centers + np.clip(wanted - centers, document["labels"][0], document["labels"][-1])
        assert abs(np.mean(np.array(released[label]) - wanted)) <= spread


@over([name for name, case in CASES.items() if case.log.startswith("grades") and "center_features" in case.flags])
def test_classes_are_drawn_from_probabilities_that_the_features_tell(name: str, base: Any) -> None:
    """From the published map, without the labels; they are exact in 16 bits, and know more than the shares do."""
    one: Base = base(name)
    if one.flags.get("output_format") == "tfrecord":
        return
    records, table = records_of(one.folder), table_of(one.case)
    drawn, probabilities = np.array(records["grade"]), np.array(records["grade_probabilities"])
    assert (probabilities.sum(axis=1) == 1).all()
    assert (probabilities * 65536 == np.rint(probabilities * 65536)).all()
    classes = ("low", "mid", "high")
    for place, name_of_class in enumerate(classes):
        assert abs(np.mean(drawn == name_of_class) - probabilities[:, place].mean()) < share_bound(
            probabilities[:, place]
        )
    truth = dict(zip(table["id"].to_pylist(), map(classes.index, table["grade"].to_pylist()), strict=True))
    true = np.array([truth[record] for record in records["id"]])
    shares = np.bincount(true) / len(true)
    chosen = probabilities[np.arange(len(true)), true]
    assert -np.log(chosen).mean() < 0.95 * -(shares * np.log(shares)).sum()
    center = next(path for path in one.folder.rglob("center.json") if path.parent.name in ("out", "grade"))
    features = {feature: records[feature] for feature in ("f", "k")}
    np.testing.assert_array_equal(ClassModel.from_json(center.read_text()).predict(features), probabilities)


@over([name for name, case in CASES.items() if case.states or case.said])
def test_a_release_states_the_facts_of_its_row(name: str, base: Any) -> None:
    """In its documents, and in what the command prints."""
    one: Base = base(name)
    for place, value in one.case.states.items():
        file, _, path = place.partition(" ")
        assert member(json.loads((one.folder / file).read_text()), path) == value, place
    for text in one.case.said:
        assert text in one.outcome.out + one.outcome.err


@over([name for name, case in CASES.items() if case.counts_as])
def test_what_counts_as_a_label_leaves_no_trace(
    name: str, base: Any, invoke: Any, command: Any, tmp_path: Path, tree: Any
) -> None:
    """A missing label, an unlisted class and a truth value give the bytes of the log with the label instead."""
    one: Base = base(name)
    known = completed(one.case, table_of(one.case))
    own = {"input": write_files(tmp_path, one.case, known), "output": tmp_path / "out", "ledger": tmp_path / "ledger"}
    outcome = invoke(command("privatize", {**one.flags, **own})).ok()
    trees = [tree(folder) for folder in (tmp_path / "out", one.folder)]
    for files in trees:
        files.pop("dead_letters.jsonl", None)  # They name the files of the log.
    assert trees[0] == trees[1]
    if "sort" in one.case.labels:
        shown = [one.outcome.out.encode(), one.outcome.err.encode(), *trees[0].values()]
        assert not any(UNLISTED.encode() in content for content in shown)
    lines = [[line for line in each.err.splitlines() if "warning" in line] for each in (outcome, one.outcome)]
    assert lines[0] == lines[1]
