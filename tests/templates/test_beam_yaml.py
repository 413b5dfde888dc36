"""Example YAML jobs, run by Beam's own command, and arguments that their transforms refuse."""

import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DOMAIN = {"label_min": 0, "label_max": 4, "label_step": 1}
ROWS: dict[str, Any] = {"label": "y", "id_column": "id"}
RECORDS = 2000
# Beam's YAML module and its imports issue deprecation warnings.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("yaml")]


@pytest.fixture(scope="module")
def csv_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file of 2,000 records with id, x and y; y is in 0..4, and missing in two records."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    lines = [f"u{i},{i / 8},{'' if i in (7, 11) else i % 5}" for i in range(RECORDS)]
    path.write_text("\n".join(["id,x,y", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def rows_job(csv_log: Path, key_file: Path, run_yaml: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs label_dp.yaml on the CSV file and returns the folder with its outputs."""
    folder = tmp_path_factory.mktemp("rows")
    variables = DOMAIN | {
        "input": csv_log, "output": folder / "rows", "release": folder / "release", "label": "y", "id_column": "id",
        "epsilon": 2, "noise_key_file": key_file, "mechanism": "unbiased", "ledger": folder / "ledger.jsonl",
        "dead_letters": folder / "dead",
    }  # fmt: skip
    run_yaml("label_dp", variables)
    return folder


def json_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The records in all shards of one output."""
    return [json.loads(line) for path in sorted(folder.glob(f"{name}-*")) for line in path.read_text().splitlines()]


def test_rows_come_out_with_privatized_labels_and_all_else_unchanged(rows_job: Path) -> None:
    rows = {row["id"]: row for row in json_lines(rows_job, "rows")}
    mechanism = json.loads(json_lines(rows_job, "release")[0]["mechanism"])

    assert set(rows) == {f"u{i}" for i in range(RECORDS)} - {"u7", "u11"}
    assert all(rows[f"u{i}"]["x"] == i / 8 for i in range(RECORDS) if i not in (7, 11))
    # The writer of JSON rounds to fifteen digits after the decimal point, in floats, with an error of its own.
    released = sorted({row["y"] for row in rows.values()})
    assert released == pytest.approx(sorted(mechanism["outputs"]), rel=2e-15, abs=2e-15)
    # Records with the same label have different outputs, so noise was added.
    assert len(Counter(row["y"] for name, row in rows.items() if int(name[1:]) % 5 == 0)) > 1


def test_the_release_says_what_it_cost_and_passes_the_audit(rows_job: Path, tmp_path: Path) -> None:
    from labeldp.pipelines.cli.commands import main

    (release,) = json_lines(rows_job, "release")
    manifest = json.loads(release["manifest"])
    (tmp_path / "mechanism.json").write_text(release["mechanism"])

    assert main(["audit", str(tmp_path / "mechanism.json")]) == 0
    assert manifest["epsilon"] == 2
    assert (manifest["records"], manifest["records_without_label"]) == (RECORDS - 2, 2)
    assert manifest["identity"] == "id"
    assert manifest["certified_epsilon"] <= 2


def test_rows_without_a_label_are_named_and_the_release_is_charged(rows_job: Path) -> None:
    left_out = [(row["id"], row["stage"], row["error"]) for row in json_lines(rows_job, "dead")]
    assert sorted(left_out) == [("u11", "privatize", "unusable label"), ("u7", "privatize", "unusable label")]
    (run,) = map(json.loads, (rows_job / "ledger.jsonl").read_text().splitlines())
    assert (run["label"], run["records"]) == ("y", RECORDS - 2)


@pytest.mark.parametrize(
    ("more", "said"),
    [({"epsilon": "much"}, "epsilon must be a number"), ({"center_features": ["x", 2]}, "must be text")],
)
def test_a_wrong_job_is_refused_before_it_runs(
    more: dict[str, Any], said: str, csv_log: Path, key_file: Path, run_yaml: Any, tmp_path: Path
) -> None:
    variables = DOMAIN | {
        "input": csv_log, "output": tmp_path / "rows", "release": tmp_path / "release", "label": "y", "id_column": "id",
        "epsilon": 2, "noise_key_file": key_file, **more,
    }  # fmt: skip
    with pytest.raises(ValueError, match=said):
        run_yaml("label_dp", variables)
    assert list(tmp_path.iterdir()) == []


def test_files_give_the_bytes_of_the_command(
    key_file: Path, run_yaml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.pipelines.cli.commands import main

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    log = tmp_path / "log.parquet"
    columns = {"x": [i / 8 for i in range(RECORDS)], "weeks": [i % 5 for i in range(RECORDS)]}
    pq.write_table(pa.table(columns), log)
    flags = {"label": "weeks", "epsilon": 1, "noise_key_file": key_file, "num_shards": 2, "mechanism": "rr"} | DOMAIN
    run_yaml("privatize_files", flags | {"input": log, "output": tmp_path / "yaml"})
    others = {"input": log, "input_format": "parquet", "output": tmp_path / "command"}
    assert main(["privatize", *(f"--{name}={value}" for name, value in (flags | others).items())]) == 0

    made, command = ({path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")} for name in
                     ("yaml", "command"))  # fmt: skip
    assert made == command
    assert {"release.json", "mechanism.json", "part-00000-of-00002.parquet"} < set(made)
    assert main(["audit", str(tmp_path / "yaml")]) == 0


class Row(NamedTuple):
    """An id and its label."""

    id: int
    y: float


beam.coders.registry.register_coder(Row, beam.coders.RowCoder)


@pytest.fixture
def digest_of_another_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates labels that change between the two passes."""
    from labeldp.mechanisms.noise.input_digest import RawSums
    from labeldp.transforms import privatize_labels as privatize

    as_ever = privatize.label_sums
    monkeypatch.setattr(privatize, "label_sums", lambda *arguments: RawSums(as_ever(*arguments).lanes + 1))


class CenteredRow(NamedTuple):
    """An id, a prediction of the label and the label."""

    id: int
    guess: float
    y: float


beam.coders.registry.register_coder(CenteredRow, beam.coders.RowCoder)


def test_rows_are_privatized_around_a_field(key_file: Path, tmp_path: Path) -> None:
    from labeldp.templates.beam_yaml import LabelDP

    guesses = [float(i % 17 + 2) for i in range(RECORDS)]
    rows = [CenteredRow(i, guess, guess + i % 3 - 1) for i, guess in enumerate(guesses)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records: Any = pipeline | beam.Create(rows).with_output_types(CenteredRow)
        found = records | LabelDP(
            **ROWS, epsilon=4.0, noise_key_file=key_file, label_min=0, label_max=20, label_step=1, center_column="guess"
        )
        for name, collection in found.items():
            text = collection | f"Text {name}" >> beam.Map(lambda row: json.dumps(row._asdict()))
            _ = text | f"Write {name}" >> beam.io.WriteToText(str(tmp_path / name))
    (release,) = json_lines(tmp_path, "release")
    (tmp_path / "mechanism.json").write_text(release["mechanism"])
    mechanism, manifest = json.loads(release["mechanism"]), json.loads(release["manifest"])
    assert mechanism["mechanism"] in ("unbiased", "bias_limited"), "chosen for models"
    assert mechanism["center"]["column"] == "guess"
    assert manifest["center"]["missing"] == 0
    outputs = {round(output, 9) for output in mechanism["outputs"]}
    released = json_lines(tmp_path, "rows")
    assert len(released) == RECORDS
    assert all(row["guess"] == guesses[row["id"]] and round(row["y"] - row["guess"], 9) in outputs for row in released)


def test_a_fine_grid_becomes_that_of_the_command(key_file: Path, tmp_path: Path) -> None:
    from labeldp.templates.beam_yaml import LabelDP

    rows = [CenteredRow(i, float(i % 17 + 2), i % 21 - 0.25) for i in range(RECORDS)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records: Any = pipeline | beam.Create(rows).with_output_types(CenteredRow)
        found = records | LabelDP(
            **ROWS,
            epsilon=4.0,
            noise_key_file=key_file,
            label_min=0,
            label_max=20,
            label_step=0.001,
            mechanism="rr_on_bins",
            leave_out=["guess"],
        )
        for name, collection in found.items():
            text = collection | f"Text {name}" >> beam.Map(lambda row: json.dumps(row._asdict()))
            _ = text | f"Write {name}" >> beam.io.WriteToText(str(tmp_path / name))
    assert all(row.keys() == {"id", "y"} for row in json_lines(tmp_path, "rows"))
    (release,) = json_lines(tmp_path, "release")
    (tmp_path / "mechanism.json").write_text(release["mechanism"])
    manifest, mechanism = json.loads(release["manifest"]), json.loads(release["mechanism"])
    assert manifest["domain"] == {"min": 0.0, "max": 20.0, "labels": 501}
    assert manifest["declared_grid"] == mechanism["declared_grid"] == {"labels": 20_001, "epsilon": 4.0}
    assert manifest["rounding"] == "randomized"
    assert manifest["left_out"] == ["guess"]


# Solved in milliseconds in the second case; auto solves for hundreds of mechanisms.
@pytest.mark.parametrize(("prior_epsilon", "mechanism_name"), [(None, "auto"), (0.5, "debiased_rr")])
def test_rows_around_a_linear_center(
    key_file: Path, tmp_path: Path, prior_epsilon: float | None, mechanism_name: str
) -> None:
    """The center is a new field; labels are centers plus outputs; the epsilons of all parts add up."""
    from labeldp.pipelines.cli.commands import main
    from labeldp.templates.beam_yaml import LabelDP

    guesses = {i: float(i % 17) for i in range(RECORDS)}
    rows = [CenteredRow(i, guess, min(guess + i % 3, 20.0)) for i, guess in guesses.items()]
    linear: dict[str, Any] = {"center": "linear", "center_features": ["guess"], "prior_epsilon": prior_epsilon}
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records: Any = pipeline | beam.Create(rows).with_output_types(CenteredRow)
        found = records | LabelDP(
            **ROWS,
            epsilon=4.0,
            noise_key_file=key_file,
            label_min=0,
            label_max=20,
            label_step=1,
            mechanism=mechanism_name,
            **linear,
        )
        for name, collection in found.items():
            text = collection | f"Text {name}" >> beam.Map(lambda row: json.dumps(row._asdict()))
            _ = text | f"Write {name}" >> beam.io.WriteToText(str(tmp_path / name))
    (release,) = json_lines(tmp_path, "release")
    (tmp_path / "mechanism.json").write_text(release["mechanism"])
    assert main(["audit", str(tmp_path / "mechanism.json")]) == 0
    mechanism, manifest = json.loads(release["mechanism"]), json.loads(release["manifest"])
    assert [each["name"] for each in mechanism["center"]["linear"]["encoders"]] == ["guess"]
    parts = [manifest[f"{part}_epsilon"] for part in ("center", "prior", "randomizer")]
    assert parts[0] > 0
    assert sum(map(Fraction, parts)) <= 4
    outputs = {round(output, 9) for output in mechanism["outputs"]}
    released = json_lines(tmp_path, "rows")
    assert len(released) == RECORDS
    assert all(row["guess"] == guesses[row["id"]] for row in released)
    assert all(round(row["y"] - row["y_center"], 9) in outputs for row in released)
    assert len({row["y_center"] for row in released}) > 10


@pytest.mark.usefixtures("digest_of_another_input")
def test_rows_that_change_between_the_passes_are_not_released(key_file: Path, tmp_path: Path) -> None:
    from labeldp.templates.beam_yaml import LabelDP

    def build(pipeline: beam.Pipeline) -> Any:
        rows: Any = pipeline | beam.Create([Row(i, float(i % 5)) for i in range(300)]).with_output_types(Row)
        return rows | LabelDP(**ROWS, epsilon=1.0, noise_key_file=key_file, label_min=0, label_max=4, label_step=1)

    with pytest.raises(Exception, match="the input changed while the job ran"):
        note(build, {"rows", "release", "dead_letters"}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_not_released_with_another_mechanism(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a solver that is computed for each consumer, on two kinds of CPU: outputs differ in the last bit."""
    from labeldp.mechanisms import Randomizer
    from labeldp.mechanisms.release.drawing import Drawing
    from labeldp.templates import beam_yaml
    from labeldp.transforms import PrivatizeLabels

    def elsewhere(drawing: Drawing) -> Randomizer:
        r = drawing.randomizer
        return Randomizer(r.labels, np.nextafter(r.outputs, np.inf), r.weights, r.epsilon, r.mechanism, r.parameters)

    monkeypatch.setattr(
        beam_yaml, "PrivatizeLabels", lambda found, *others: PrivatizeLabels(found | beam.Map(elsewhere), *others)
    )

    def build(pipeline: beam.Pipeline) -> Any:
        rows: Any = pipeline | beam.Create([Row(i, float(i % 5)) for i in range(300)]).with_output_types(Row)
        return rows | beam_yaml.LabelDP(
            **ROWS, epsilon=1.0, noise_key_file=key_file, label_min=0, label_max=4, label_step=1
        )

    with pytest.raises(Exception, match="labels were drawn by another mechanism"):
        note(build, {"rows", "release", "dead_letters"}, tmp_path)
    assert list(tmp_path.iterdir()) == []


class Graded(NamedTuple):
    """A row with a class."""

    id: str
    y: str
    x: float


def test_rows_of_classes_keep_their_type(key_file: Path, tmp_path: Path) -> None:
    from labeldp.templates import beam_yaml

    logged = [Graded(f"u{i}", ("low", "high", "other")[i % 3], i / 2) for i in range(300)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows: Any = pipeline | beam.Create(logged).with_output_types(Graded)
        found = rows | beam_yaml.LabelDP(**ROWS, epsilon=5.0, noise_key_file=key_file, label_classes=["low", "high"])
        _ = found["rows"] | beam.Map(lambda row: f"{row.id} {row.y} {row.x}") | beam.io.WriteToText(str(tmp_path / "y"))
    lines = [line.split() for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert {(name, x) for name, _, x in lines} == {(row.id, str(row.x)) for row in logged}
    assert {label for _, label, _ in lines} == {"low", "high"}
    # Of epsilon 5, 0.993 of the labels are kept.
    kept = sum(dict.fromkeys((row.id, row.y) for row in logged).keys() >= {(name, label)} for name, label, _ in lines)
    assert kept > 180


def test_rows_of_classes_are_drawn_from_a_center_as_those_of_a_frame(key_file: Path, tmp_path: Path) -> None:
    """The labels and their probabilities are those of `labeldp.privatize`: both drivers run one plan."""
    import labeldp
    import pandas as pd
    from labeldp.templates import beam_yaml

    logged = [Graded(f"u{i}", "high" if i % 100 < 3 * (i % 7) else "low", float(i % 7)) for i in range(3000)]
    asked: dict[str, Any] = {"label_classes": ["low", "high"], "center": "cells", "center_features": ["x"]}
    asked |= {**ROWS, "epsilon": 2.0, "noise_key_file": str(key_file)}
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows: Any = pipeline | beam.Create(logged).with_output_types(Graded)
        found = rows | beam_yaml.LabelDP(**asked)
        _ = found["rows"] | beam.Map(_line) | "Rows" >> beam.io.WriteToText(str(tmp_path / "rows"))
        _ = found["release"] | beam.Map(_manifest) | "Release" >> beam.io.WriteToText(str(tmp_path / "release"))
    released = labeldp.privatize(pd.DataFrame(logged), **asked, ledger=tmp_path / "ledger.jsonl")

    frame = released.frame.set_index("id")
    expected = {name: [row.y, *row.y_probabilities] for name, row in frame.iterrows()}
    lines = [json.loads(line) for path in tmp_path.glob("rows*") for line in path.read_text().splitlines()]
    assert {name: drawn for name, *drawn in lines} == expected
    assert len({tuple(drawn[1:]) for drawn in expected.values()}) > 1
    (manifest,) = [json.loads(path.read_text()) for path in tmp_path.glob("release*")]
    assert manifest["class_center"]["features"] == ["x"]
    assert manifest["certified_epsilon"] == released.certified_epsilon


def _line(row: Any) -> str:
    return json.dumps([row.id, row.y, *map(float, row.y_probabilities)])


def _manifest(release: Any) -> str:
    return release.manifest


def note(build: Callable[[beam.Pipeline], Any], names: set[str], folder: Path) -> None:
    """Runs the pipeline, checks the names of its outputs, and creates a file for each output that is not empty."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = build(pipeline)
        assert set(found) == names
        for name, collection in found.items():
            _ = collection | f"Note {name}" >> beam.Map(_touch, str(folder / name))


def _touch(_: Any, path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"label_max": None}, "the public label domain"),
        ({"label_values": [0, 1]}, "label_values replaces label_min, label_max and label_step"),
        ({"label_step": 0}, "label_step"),
        ({"epsilon": -1}, "epsilon"),
        ({"prior_epsilon": 2}, "prior_epsilon"),
        ({"mechanism": "magic"}, "unknown mechanism 'magic'"),
        ({"id_column": "y"}, "id_column"),
        ({"mechanism": "auto:bias=1"}, "mechanism auto has no parameters"),
        ({"mechanism": "rr:bias=1"}, "no parameter 'bias'"),
        (
            {"label_classes": ["a", "b"], "center": "linear", "center_features": ["x"], **dict.fromkeys(DOMAIN)},
            "center linear is for labels that are numbers",
        ),
        ({"center": "linear"}, "needs center: cells or linear, and center_features"),
        ({"center_features": ["x"]}, "needs center: cells or linear, and center_features"),
        ({"leave_out": "id,y"}, "leave_out: 'y' is released, as the label or its center"),
        ({"where": "x=1"}, "LabelDP has no parameter 'where'; it has: label, id_column, "),
        ({"noise_key_file": None}, "noise_key_file is missing"),
        ({"center": "linear", "center_features": ["x", "y"]}, "must name neither the label nor the id_column"),
        ({"center": "linear", "center_features": ["x"], "leave_out": "x"}, "and leave_out name the same field"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_job_runs(arguments: dict[str, Any], said: str) -> None:
    from labeldp.templates.beam_yaml import LabelDP

    standard: dict[str, Any] = {"label": "y", "id_column": "id", "epsilon": 1, "noise_key_file": "noise.key", **DOMAIN}
    with pytest.raises(ValueError, match=said):
        LabelDP(**(standard | arguments))


@pytest.mark.parametrize(
    ("fields", "said"), [({"id": "a"}, "no field 'y'"), ({"y": 1.0}, "no field 'id'"), (None, "no schema")]
)
def test_rows_that_do_not_fit_are_refused_before_the_job_runs(fields: dict[str, Any] | None, said: str) -> None:
    from labeldp.templates.beam_yaml import LabelDP
    from labeldp.transforms import InputError

    transform = LabelDP(**ROWS, epsilon=1.0, noise_key_file="noise.key", label_min=0, label_max=4, label_step=1)
    elements = beam.Create([beam.Row(**fields)] if fields else ["text"])
    with pytest.raises(InputError, match=said):
        _ = beam.Pipeline() | elements | transform


class UnitRow(NamedTuple):
    """An id, the unit of the row and the label."""

    id: int
    user: str
    y: float


beam.coders.registry.register_coder(UnitRow, beam.coders.RowCoder)


def test_rows_of_privacy_units(key_file: Path, tmp_path: Path) -> None:
    """At most two rows of each unit come out, and epsilon is for all labels of a unit."""
    from labeldp.templates.beam_yaml import LabelDP

    rows = [UnitRow(i, f"u{i % 70 if i % 3 else 0}", float(i % 5)) for i in range(400)]
    unit: dict[str, Any] = {"mechanism": "rr", "unit_column": "user", "max_records_per_unit": 2}
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        records: Any = pipeline | beam.Create(rows).with_output_types(UnitRow)
        found = records | LabelDP(
            **ROWS, epsilon=3.0, noise_key_file=key_file, label_min=0, label_max=4, label_step=1, **unit
        )
        for name, collection in found.items():
            text = collection | f"Text {name}" >> beam.Map(lambda row: json.dumps(row._asdict()))
            _ = text | f"Write {name}" >> beam.io.WriteToText(str(tmp_path / name))
    released, (release,) = json_lines(tmp_path, "rows"), json_lines(tmp_path, "release")
    users = Counter(row.user for row in rows)
    assert Counter(row["user"] for row in released) == {user: min(count, 2) for user, count in users.items()}
    manifest, mechanism = json.loads(release["manifest"]), json.loads(release["mechanism"])
    assert manifest["unit"]["records_left_out"] == 400 - len(released)
    assert 2 * Fraction(mechanism["certificate"]["epsilon"]) < manifest["certified_epsilon"] <= manifest["epsilon"] == 3
