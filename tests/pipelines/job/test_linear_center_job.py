"""`--center linear` and `--mechanism auto` in whole jobs: budget, temporary files, features of every kind."""

import gzip
import io
import json
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.written_logs import write_log

ROWS = 900
DOMAIN = {"label": "y", "label_min": 0, "label_max": 12, "label_step": 1, "epsilon": 2}
# Solved in milliseconds; auto solves for hundreds of mechanisms.
LINEAR = DOMAIN | {"center": "linear", "mechanism": "rr"}


def log_table(rows: int = ROWS, seed: int = 5) -> pa.Table:
    """Records whose label is a linear function of numbers and of a category, with noise."""
    rng = np.random.default_rng(seed)
    first, second, code = rng.normal(size=rows), rng.normal(size=rows), rng.integers(0, 4, rows)
    labels = np.clip(np.rint(5 + 2 * first - second + code + rng.normal(0, 0.5, rows)), 0, 12)
    return pa.table({
        "id": np.arange(rows), "a": first, "b": second.astype(np.float32), "code": code,
        "word": [f"w{value}" for value in code.tolist()], "y": labels,
    })  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(log_table(), path)
    return path


Privatize = Callable[..., Any]


@pytest.fixture
def privatize(invoke: Any, command: Any, key_file: Path, tmp_path: Path, log: Path) -> Privatize:
    """Function (name of the output, switch, ..., flag=value, ...) -> outcome of the job. None drops a flag."""

    def run(name: str, *switches: str, program: str = "privatize", **flags: Any) -> Any:
        whole = {"input": log, "input_format": "parquet", "noise_key_file": key_file, "ledger": tmp_path / "ledger"}
        if program == "apply":
            whole["label"] = "y"
        else:
            whole |= LINEAR
        if program != "fit":
            whole |= {"output": tmp_path / name, "output_format": "parquet"}
        return invoke([*command(program, whole | flags), *switches])

    return run


@pytest.fixture
def center_of(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Function (name of an output) -> member `center` of its mechanism file."""
    return lambda name: json.loads((tmp_path / name / "mechanism.json").read_text())["center"]


def charges(ledger: Path) -> list[dict[str, Any]]:
    """The charges of the last run in a ledger."""
    return json.loads(ledger.read_text().splitlines()[-1])["charges"]


def budget_of(release: dict[str, Any]) -> list[Fraction]:
    return [Fraction(release.get(f"{part}_epsilon", 0.0)) for part in ("center", "prior", "randomizer")]


# Budget and temporary files.


def test_apply_alone_is_charged_for_the_center_as_well(privatize: Privatize, tmp_path: Path) -> None:
    """Its ledger does not know the release of `fit`, and the mechanism file is published again."""
    file = tmp_path / "m.json"
    privatize("m.json", program="fit", mechanism_file=file, ledger=tmp_path / "elsewhere").ok()
    refused = privatize("out", program="apply", mechanism_file=file, epsilon_cap=1.9)
    assert (refused.code, "would be exceeded: with this run the epsilon spent is 2" in refused.error) == (2, True)
    privatize("out", program="apply", mechanism_file=file, epsilon_cap=2).ok()
    assert [each["what"] for each in charges(tmp_path / "ledger")] == ["center", "prior", "labels"]


@pytest.mark.parametrize(
    ("flags", "center"),
    [
        ({"epsilon": 2e-9, "mechanism": "rr_on_bins"}, False),
        ({"epsilon": 30}, True),
        ({"epsilon": 1, "prior_epsilon": 0.999999998}, False),
        ({"mechanism": "unbiased", "epsilon": 1}, True),
    ],
    ids=str,
)
def test_the_parts_add_up_to_at_most_epsilon(
    privatize: Privatize, tmp_path: Path, flags: dict[str, Any], center: bool
) -> None:
    privatize("out", **flags).ok()
    release = json.loads((tmp_path / "out" / "release.json").read_text())
    parts = budget_of(release)
    asked = Fraction(float((DOMAIN | flags)["epsilon"]))
    assert asked * (1 - Fraction(1, 10**12)) <= sum(parts) <= asked
    assert (parts[0] > 0) == center
    if "prior_epsilon" in flags:
        assert release["prior_epsilon"] == flags["prior_epsilon"]
    if not center:
        centers = pq.read_table(tmp_path / "out" / "data")["y_center"]
        assert set(centers.to_pylist()) == {6.0}, "a center that costs nothing is the middle label"


def test_temporary_files_with_other_centers_end_the_job(
    privatize: Privatize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of the last pass has the centers that it read, that of the pass before those that it computed."""
    from labeldp.transforms.center import center_files

    monkeypatch.setattr(center_files, "open_file", lambda path: io.BytesIO(bytes(Path(path).stat().st_size)))
    outcome = privatize("changed")
    assert (outcome.code, "the input changed while the job ran" in outcome.error) == (1, True)
    assert {path.name for path in tmp_path.iterdir()} <= {"ledger", "noise.key"}


def test_no_center_stays_in_a_temporary_file(
    privatize: Privatize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.transforms.center import center_files

    create, written = center_files.create, []
    monkeypatch.setattr(center_files, "create", lambda path: written.append(path) or create(path))
    privatize("m.json", program="fit", mechanism_file=tmp_path / "m.json").ok()
    assert not written
    privatize("one").ok()
    assert written
    assert not any(Path(path).exists() for path in written)
    assert not [path for path in tmp_path.rglob("*") if "centers-" in path.name]


# Features.


def test_categories_missing_values_and_features_without_information(
    privatize: Privatize, center_of: Any, tmp_path: Path, invoke: Any
) -> None:
    table, rows = log_table(), np.arange(ROWS)
    holes = [None if row % 7 == 0 else value for row, value in enumerate(table["a"].to_pylist())]
    odd = [float("nan") if row % 3 == 0 else float("inf") for row in rows]
    lists = [[], [1.0, 2.0], [3.0], [4.0]] * (ROWS // 4)
    table = (
        table.set_column(1, "a", pa.array(holes, pa.float64()))
        .append_column("constant", pa.array(np.ones(ROWS)))
        .append_column("odd", pa.array(odd))
        .append_column("lists", pa.array(lists))
        .append_column("flag", pa.array((rows % 2).astype(bool)))
        .append_column("day", pa.array(rows % 30, pa.int32()).cast(pa.date32()))
        .append_column("none", pa.nulls(ROWS, pa.string()))
        .append_column("wide", pa.array([f"v{row % 300}" for row in rows]).dictionary_encode())
    )
    pq.write_table(table, tmp_path / "log.parquet")
    privatize("out", input=tmp_path / "log.parquet", id_column="id").ok()
    found = {each["name"]: each for each in center_of("out")["linear"]["encoders"]}
    assert set(found) == {"a", "b", "code", "word", "lists", "flag", "wide"}, "dates are no features"
    assert "values" not in found["code"]
    assert found["word"]["values"] == ["w0", "w1", "w2", "w3"]
    assert (found["wide"]["values"], len(found["wide"]["shares"])) == ([], 64), "300 values are hashed to 64 places"
    invoke(["audit", str(tmp_path / "out"), "--data"]).ok()


def test_files_with_other_categories_and_places_are_applied(
    privatize: Privatize, center_of: Any, tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Categories are of text; `apply` takes columns of other types, and as many places as the file says."""
    from labeldp.mechanisms.center.linear_center import design_center
    from labeldp.mechanisms.release import center_passes

    table, rows = log_table(), np.arange(ROWS)
    typed = {
        "code": table["code"], "flag": pa.array(rows % 2 == 0), "wide": pa.array(rows % 300),
        "day": pa.array(rows % 5, pa.int32()).cast(pa.date32()),
    }  # fmt: skip
    common = table.select(["id", "a", "y"]).to_pydict()
    pq.write_table(pa.table(common | typed), tmp_path / "log.parquet")
    texts = {name: [str(value) for value in column.to_pylist()] for name, column in typed.items()}
    pq.write_table(pa.table(common | texts), tmp_path / "texts.parquet")
    file = tmp_path / "m.json"
    with monkeypatch.context() as patched:
        patched.setattr(center_passes, "design_center", partial(design_center, places=8))
        fit = {"input": tmp_path / "texts.parquet", "id_column": "id", "mechanism_file": file}
        privatize("m.json", program="fit", **fit, epsilon=8).ok()
    records = {**typed, "flag": texts["flag"], "day": texts["day"]}
    write_log(tmp_path / "records.tfrecord", common | records)
    for name, format in (("log", "parquet"), ("texts", "parquet"), ("records", "tfrecord")):
        source = {"input": tmp_path / f"{name}.{format}", "input_format": format, "output_format": format}
        privatize(name, program="apply", **source, id_column="id", mechanism_file=file).ok()
        audited = invoke(["audit", str(tmp_path / name), "--data"]).ok().out
        assert "every center is the one that the published map predicts" in audited
    found = {each["name"]: each for each in center_of("log")["linear"]["encoders"] if "values" in each}
    assert (found["code"]["values"], found["flag"]["values"]) == (["0", "1", "2", "3"], ["False", "True"])
    assert found["day"]["values"][0] == "1970-01-01"
    assert (found["wide"]["values"], len(found["wide"]["shares"])) == ([], 8)
    released, as_texts = (pq.read_table(tmp_path / name / "data") for name in ("log", "texts"))
    assert len(set(released["y_center"].to_pylist())) > 4
    for name in ("y", "y_center"):
        assert released[name].equals(as_texts[name])


def test_tfrecords_whose_features_differ(privatize: Privatize, center_of: Any, invoke: Any, tmp_path: Path) -> None:
    """One file has no `b`, one has a feature that the first has not; integers and floats are both numbers."""
    folder, table = tmp_path / "logs", log_table()
    write_log(folder / "0.tfrecord", table.slice(0, 300))
    write_log(folder / "1.tfrecord", table.slice(300, 300).drop(["b"]).append_column("late", table["a"][:300]))
    codes = table["code"].cast(pa.float32())
    write_log(folder / "2.tfrecord", table.slice(600, 300).set_column(3, "code", codes[600:]))
    flags = {"input": folder / "*.tfrecord", "input_format": "tfrecord", "output_format": "tfrecord"}
    privatize("out", **flags).ok()
    assert [each["name"] for each in center_of("out")["linear"]["encoders"]] == ["a", "b", "code", "id", "word"]
    invoke(["audit", str(tmp_path / "out"), "--data"]).ok()

    texts = pa.array([f"w{value}" for value in range(300)])
    write_log(folder / "2.tfrecord", table.slice(600, 300).set_column(1, "a", texts))
    outcome = privatize("texts", **flags)
    assert outcome.code == 1
    assert "feature 'a' holds numbers in some records and text in others: make it one of them" in outcome.error
    privatize("texts", **flags, center_features="b,word").ok()


def test_a_record_that_has_the_new_column_already_fails_the_job(privatize: Privatize, tmp_path: Path) -> None:
    """It is not in the first records. Appended to an encoded record, it would be there twice."""
    folder, table = tmp_path / "logs", log_table()
    write_log(folder / "0.tfrecord", table)
    write_log(folder / "1.tfrecord", table.append_column("y_center", table["b"]))
    for format in ("tfrecord", "parquet"):
        outcome = privatize("out", input=folder / "*.tfrecord", input_format="tfrecord", output_format=format)
        assert outcome.code == 1
        assert "1.tfrecord: there is a column 'y_center' already" in outcome.error
    assert not (tmp_path / "out").exists()


def test_a_filter_keeps_its_records_out_of_the_center(privatize: Privatize, center_of: Any, tmp_path: Path) -> None:
    pq.write_table(log_table().filter(pc.equal(log_table()["code"], 1)), tmp_path / "kept.parquet")  # type: ignore[attr-defined]
    privatize("where", where="code=1", id_column="id").ok()
    privatize("kept", input=tmp_path / "kept.parquet", id_column="id").ok()
    # `code` is the column of the filter; in the other log it has a single value.
    assert center_of("where") == center_of("kept")


# Refusals.


def test_the_new_column_can_have_another_name(privatize: Privatize, tmp_path: Path) -> None:
    table = log_table()
    pq.write_table(table.append_column("y_center", table["a"]), tmp_path / "log.parquet")
    privatize("named", input=tmp_path / "log.parquet", center_column="guess").ok()
    names = pq.read_schema(next((tmp_path / "named" / "data").iterdir())).names
    assert names == [*table.column_names, "y_center", "guess"]
    # A release has the column: the mechanism cannot be applied to it once more.
    file = tmp_path / "named" / "mechanism.json"
    outcome = privatize("twice", program="apply", mechanism_file=file, input=tmp_path / "named" / "data" / "*")
    assert outcome.code == 1
    assert "there is a column 'guess' already" in outcome.error
    assert "for apply remove that column" in outcome.error


def test_apply_to_a_log_without_a_feature_fails_and_names_it(privatize: Privatize, tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    privatize("m.json", program="fit", mechanism_file=file, center_features="a,word").ok()
    pq.write_table(log_table().drop(["word"]), tmp_path / "log.parquet")
    outcome = privatize("out", program="apply", mechanism_file=file, input=tmp_path / "log.parquet")
    assert (outcome.code, "there is no column 'word'" in outcome.error) == (1, True)
    pq.write_table(log_table().select(["a", "word", "y"]), tmp_path / "log.parquet")
    privatize("out", program="apply", mechanism_file=file, input=tmp_path / "log.parquet").ok()


# The first records are read in the main program.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,y\n1,SENTINEL\n2,3\n", "label column 'y' holds text on line 2, not a number"),
        ("a,y\n" + "2,3\n" * 50 + "1,SENTINEL\n", "label column 'y' holds text on line 52, not a number"),
        ("a,y\n" + "2,3\n" * 50 + '1,"SENTINEL\n', "line 52"),
        ("a,y\n" + "2,3\n" * 50 + "1,SENTINEL,7\n", "line 52 has 3 fields, where the header has 2"),
        ("a,a,y\n1,2,SENTINEL\n", "column 'a' occurs twice"),
    ],
    ids=["first line", "later", "open quote", "fields", "names"],
)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_unreadable_first_records_are_the_same_failure_with_and_without_a_center(
    privatize: Privatize, tmp_path: Path, content: str, message: str, compressed: bool
) -> None:
    path = tmp_path / ("log.csv.gz" if compressed else "log.csv")
    path.write_bytes(gzip.compress(content.encode()) if compressed else content.encode())
    flags = {"input": path, "input_format": "csv"}
    with_center, without = privatize("out", **flags), privatize("out", **flags, center=None)
    assert (with_center.code, without.code) == (1, 1)
    assert with_center.error == without.error
    assert str(path) in with_center.error
    assert message in with_center.error
    assert "SENTINEL" not in with_center.err + with_center.out


def test_files_without_records_come_before_the_others(privatize: Privatize, center_of: Any, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    pq.write_table(log_table().slice(0, 0), folder / "0.parquet")
    pq.write_table(log_table(), folder / "1.parquet")
    privatize("out", input=folder / "*.parquet").ok()
    assert len(center_of("out")["linear"]["encoders"]) == 5
    outcome = privatize("empty", input=folder / "0.parquet")
    assert (outcome.code, "--center linear: " in outcome.error) == (2, True)
