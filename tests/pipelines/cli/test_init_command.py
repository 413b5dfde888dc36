"""`labeldp init`: a commented job file from the format and the column names of a file, and from no value of it."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.written_logs import write_log

SECRET_LABEL = 41.625


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same records in each format."""
    folder = tmp_path_factory.mktemp("logs")
    columns = {"age": [8131, 8132], "home town": ["a", "b"], "weeks": [SECRET_LABEL, SECRET_LABEL]}
    return {kind: write_log(folder / f"log.{kind}", columns) for kind in ("csv", "parquet", "tfrecord")}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


@pytest.mark.parametrize("kind", ["csv", "parquet", "tfrecord"])
def test_it_names_format_and_columns_and_no_value(invoke: Any, logs: dict[str, Path], target: Path, kind: str) -> None:
    outcome = invoke(["init", str(logs[kind]), f"--output={target}"]).ok()
    text = target.read_text()

    flags = yaml.safe_load(text)
    assert (flags["input"], flags["input_format"]) == (str(logs[kind]), kind)
    assert flags["output_format"] == ("tfrecord" if kind == "tfrecord" else "parquet")
    assert {name for name, value in flags.items() if value is None} == {
        "label", "label_max", "epsilon",
    }  # fmt: skip
    types = {"age": "int64", "home town": "string", "weeks": "double"}
    for name, type in types.items():
        assert f" {name} ({type})" in text if kind == "parquet" else f" {name}" in text
    # Folders of tests have numbers in their names.
    shown = (text + outcome.out + outcome.err).replace(str(target), "").replace(str(logs[kind]), "")
    assert not [value for value in ("41", "8131", "8132") if value in shown]
    # The path of the file is as long as it is.
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 120


@pytest.mark.parametrize("header", ['"age","weeks"', '"age";"weeks"', "\nage,weeks", '"age, years"|"weeks"'])
def test_the_header_line_is_read_as_by_the_job(invoke: Any, tmp_path: Path, target: Path, header: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n")
    invoke(["init", str(path), f"--output={target}"]).ok()
    assert "csv" in yaml.safe_load(target.read_text())["input_format"]
    assert "weeks" in target.read_text()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_values_give_the_same_file(invoke: Any, tmp_path: Path, kind: str) -> None:
    texts = []
    for number, label in enumerate((0.0, 1e300)):
        path = tmp_path / f"log.{kind}"
        if kind == "csv":
            path.write_text(f"f,y\n1,{label}\n")
        else:
            pq.write_table(pa.table({"f": [1], "y": [label]}), path)
        target = tmp_path / f"{number}.yaml"
        invoke(["init", str(path), f"--output={target}"]).ok()
        texts.append(target.read_text().replace(f"{number}.yaml", "job.yaml"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("names", "proposed"),
    [
        ("age,weeks", ("NAME", "user", "user")),
        ("click,price,weeks", ("click", "user", "click")),
        ("user_id,campaign_id,device,weeks,row_id", ("row_id", "user_id", "row_id,user_id")),
        ("ID,userUUID,patient,user_age,weeks", ("ID", "userUUID", "ID,userUUID,patient")),
    ],
)
def test_columns_whose_names_look_like_ids_are_proposed(
    invoke: Any, tmp_path: Path, target: Path, names: str, proposed: tuple[str, ...]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{names}\n")
    invoke(["init", str(path), "--label=weeks", f"--output={target}"]).ok()
    text = target.read_text()
    for flag, value in zip(("id_column", "unit_column", "leave_out"), proposed, strict=True):
        assert f"\n# {flag}: {value} " in text
    # The label is none of them.
    target.unlink()
    label = proposed[2].partition(",")[0]
    if label in names.split(","):
        invoke(["init", str(path), f"--label={label}", f"--output={target}"]).ok()
        assert not [line for line in target.read_text().splitlines() if line[:1] == "#" and f": {label} " in line]


def test_the_job_says_what_is_left_to_fill_in(invoke: Any, logs: dict[str, Path], target: Path) -> None:
    invoke(["init", str(logs["csv"]), f"--output={target}"]).ok()
    outcome = invoke(["privatize", f"--config={target}"])

    assert outcome.code == 2
    lines = [
        number
        for number, line in enumerate(target.read_text().splitlines(), start=1)
        if line[:1] != "#" and line.endswith(":")
    ]
    names = ("label", "label_max", "epsilon")
    missing = ", ".join(f"{name} (line {line})" for name, line in zip(names, lines, strict=True))
    assert f"{target}: fill in {missing} (see" in outcome.error


def test_a_completed_file_runs(invoke: Any, logs: dict[str, Path], target: Path, outputs: Path, key_file: Path) -> None:
    invoke(["init", str(logs["csv"]), "--label=weeks", f"--output={target}"]).ok()
    text = target.read_text()
    filled = {"label_max": "52", "epsilon": "1"}
    for name, value in filled.items():
        assert f"\n{name}:\n" in text
        text = text.replace(f"\n{name}:\n", f"\n{name}: {value}\n")
    target.write_text(
        text.replace("output: released", f"output: {outputs / 'released'}").replace(
            "# for: log_features", "for: labels"
        )
    )
    run = ["privatize", f"--config={target}", f"--noise_key_file={key_file}"]

    assert "weeks: 53 labels" in invoke([*run, "--dry_run"]).ok().out
    invoke(run).ok()
    assert (outputs / "released" / "release.json").exists()


@pytest.mark.parametrize("delimiter", [";", "|", "\\t", "\t", " "])
def test_a_dialect_is_in_the_job_file(
    invoke: Any, tmp_path: Path, target: Path, job: Any, outputs: Path, delimiter: str
) -> None:
    path, mark = tmp_path / "log.csv", delimiter.replace("\\t", "\t")
    rows = [["gr\u00f6\u00dfe", "y"], *([str(i), str(i % 5)] for i in range(300))]
    path.write_text("".join(mark.join(row) + "\n" for row in rows), encoding="utf-16")
    dialect = ["--csv_dialect", f"delimiter={delimiter}", "encoding=utf-16"]
    invoke(["init", str(path), f"--output={target}", "--label=y", *dialect]).ok()
    text = target.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["csv_dialect"] == {"delimiter": delimiter, "encoding": "utf-16"}
    assert "#   gr\u00f6\u00dfe, y" in text
    invoke([*job(input=None, input_format=None), f"--config={target}"]).ok()
    assert pq.read_table(outputs / "released" / "data").schema.names == ["gr\u00f6\u00dfe", "y"]


@pytest.mark.parametrize(
    ("name", "mark", "delimiter"),
    [
        ("a.csv", ";", ";"),
        ("a.csv", "|", "|"),
        ("a.tsv", "\t", "\\t"),
        ("a.csv", "\t", "\\t"),
        ("a.tsv.gz", "\t", "\\t"),
    ],
)
def test_the_delimiter_is_found(
    invoke: Any, tmp_path: Path, target: Path, job: Any, outputs: Path, name: str, mark: str, delimiter: str
) -> None:
    rows = ["name, of a kind", "f", "y"], *([f"k{i % 3}", str(i), str(i % 5)] for i in range(300))
    content = "".join(mark.join(row) + "\n" for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    invoke(["init", str(tmp_path / name), f"--output={target}"]).ok()
    assert yaml.safe_load(target.read_text())["csv_dialect"]["delimiter"] == delimiter
    invoke([*job(input=None, input_format=None), f"--config={target}"]).ok()
    assert pq.read_table(outputs / "released" / "data").schema.names == ["name, of a kind", "f", "y"]


def test_columns_and_marks_are_in_the_job_file(
    invoke: Any, tmp_path: Path, target: Path, job: Any, outputs: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("".join(f"{i},25;1.000,5;{i % 5},0\n" for i in range(300)))
    flags = ["--csv_dialect", "delimiter=;", "columns=f,g,y", "decimal=,", "thousands=.", "newlines=true"]
    invoke(["init", str(path), f"--output={target}", *flags]).ok()
    invoke([*job(input=None, input_format=None), f"--config={target}"]).ok()
    table = pq.read_table(outputs / "released" / "data").to_pydict()
    assert table["f"] == [i + 0.25 for i in range(300)]
    assert table["g"] == [1000.5] * 300


def test_every_commented_flag_exists() -> None:
    from labeldp.pipelines.cli.commands import command_parser
    from labeldp.pipelines.cli.init_command import job_template

    input = {"input": "log.csv", "input_format": "csv", "csv_dialect": {"delimiter": ";"}}
    lines = job_template("job.yaml", input, [("f", "")], None).splitlines()
    named = {line.removeprefix("# ").partition(":")[0] for line in lines if ":" in line and "  #" in line}
    named |= {line.partition(":")[0] for line in lines if line and line[0] not in "# "}
    assert named >= {"id_column", "where", "noise_key_file", "label", "epsilon", "csv_dialect"}
    assert named <= set(command_parser("privatize").flags())


def test_names_that_would_break_the_file(invoke: Any, tmp_path: Path, target: Path) -> None:
    """A column name may hold a line break, and a file name what YAML would read as something else."""
    path = tmp_path / "a: {b} #c.parquet"
    pq.write_table(pa.table({"f\nepsilon: 99": [1], "y": [1.0]}), path)
    invoke(["init", str(path), "--label=f\nepsilon: 99", f"--output={target}"]).ok()

    flags = yaml.safe_load(target.read_text())
    assert (flags["input"], flags["label"], flags["epsilon"]) == (str(path), "f\nepsilon: 99", None)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere.csv"], "matches no file"),
        (["{folder}/log.csv", "--label=week"], "it has: age, home town, weeks; did you mean weeks?"),
        (["{folder}/other"], "the name does not tell the format: give --input_format"),
        (["{folder}/numbers.csv"], "does not look like column names"),
        ([], "FILE"),
        (["{folder}/log.csv", "--csv_dialect=delimiter=ab"], "--csv_dialect delimiter must be one character"),
        (["{folder}/log.csv", "--csv_dialect=encoding=hex"], "--csv_dialect encoding must be a text encoding"),
        (
            ["{folder}/log.parquet", "--csv_dialect=delimiter=;"],
            "--csv_dialect is for CSV, but {folder}/log.parquet is parq",
        ),
        (
            ["{folder}/semicolons.csv", "--label=week"],
            "which has only one, because it has no ',': --csv_dialect delimiter=",
        ),
        (["{folder}/spaces.csv", "--label=weeks"], "but ' weeks', with a space that is part of the name"),
        (["{folder}/log.csv", "--output=/nowhere/job.yaml"], "--output"),
    ],
)
def test_what_is_refused(
    invoke: Any, logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = logs["csv"].parent
    (folder / "other").write_text("a,b\n1,2\n")
    (folder / "semicolons.csv").write_text(f"age;weeks\n1;{SECRET_LABEL}\n")
    (folder / "spaces.csv").write_text(f"age, weeks\n1, {SECRET_LABEL}\n")
    (folder / "numbers.csv").write_text(f"1,{SECRET_LABEL}\n2,3\n")
    outcome = invoke(["init", *(part.format(folder=folder) for part in argv)])

    assert (outcome.code, outcome.out) == (2, "")
    assert said.format(folder=folder) in outcome.error
    assert str(SECRET_LABEL) not in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept(invoke: Any, logs: dict[str, Path], target: Path) -> None:
    target.write_text("mine\n")
    outcome = invoke(["init", str(logs["csv"]), f"--output={target}"])

    assert (outcome.code, target.read_text()) == (2, "mine\n")
    assert f"--output {target} exists" in outcome.error


def test_a_parquet_file_of_any_name(invoke: Any, logs: dict[str, Path], tmp_path: Path, target: Path) -> None:
    path = tmp_path / "part-00000"
    path.write_bytes(logs["parquet"].read_bytes())
    invoke(["init", str(path), f"--output={target}"]).ok()

    assert yaml.safe_load(target.read_text())["input_format"] == "parquet"
