"""Example YAML jobs, run by Beam's own command, and arguments that their transforms refuse."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.typehints.row_type import RowTypeConstraint
from labeldp.pipelines.spec.fields import MODELS_OF_LOG

from tests.release_cases import over, table_of

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


DRIVEN = (
    "center column", "fine grid", "parquet to parquet, linear", "units", "missing labels", "classes",
    "center of classes", "log features, categories",
)  # fmt: skip
OF_FILES = ("input", "input_format", "output_format", "num_shards", "ledger", "for")
KINDS: dict[str, Any] = {"int64": int, "double": float, "string": str, "bool": bool}


def rows_of(pipeline: beam.Pipeline, table: pa.Table) -> Any:
    """The records of a table, as rows with its schema."""
    fields = [
        (field.name, KINDS[str(field.type)] | None if table[field.name].null_count else KINDS[str(field.type)])
        for field in table.schema
    ]
    kind = RowTypeConstraint.from_fields(fields)
    return pipeline | beam.Create(table.to_pylist()) | beam.Map(lambda row: beam.Row(**row)).with_output_types(kind)


@over(DRIVEN)
def test_rows_are_those_of_the_command(name: str, base: Any, tmp_path: Path) -> None:
    """Labels, centers and probabilities are those of a release of files: all drivers run one plan."""
    from labeldp.templates.beam_yaml import LabelDP

    made = base(name)
    flags = {key: value for key, value in made.flags.items() if value is not None and key not in OF_FILES}
    document = json.loads((made.folder / "mechanism.json").read_text())
    chosen = {"center": "cells"} if "class_center" in document else {"mechanism": document["mechanism"]}
    flags |= {"for_": MODELS_OF_LOG} if made.flags.get("for") == MODELS_OF_LOG else chosen
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = rows_of(pipeline, table_of(made.case)) | LabelDP(**flags, leave_out="z")
        for output, collection in found.items():
            text = collection | f"Text {output}" >> beam.Map(lambda row: json.dumps(row._asdict(), default=list))
            _ = text | f"Write {output}" >> beam.io.WriteToText(str(tmp_path / output))
    rows = sorted(json_lines(tmp_path, "rows"), key=lambda row: row["id"])
    records = pq.read_table(made.folder / "data").drop_columns(["z"]).sort_by("id").to_pylist()
    assert rows == records
    (release,) = json_lines(tmp_path, "release")
    manifest = json.loads((made.folder / "release.json").read_text())
    stated = json.loads(release["manifest"])
    for member in (
        "epsilon",
        "certified_epsilon",
        "records",
        "adjacency",
        "unit",
        "center",
        "class_center",
        "rounding",
    ):
        assert stated.get(member) == manifest.get(member), member
    assert json.loads(release["mechanism"]) == document


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
        ({"center": "linear"}, "needs center: cells, linear or marginals, and center_features"),
        ({"center_features": ["x"]}, "needs center: cells, linear or marginals, and center_features"),
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
