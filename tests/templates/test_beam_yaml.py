"""The example YAML jobs, run by Beam's own command, and what their transforms refuse."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DOMAIN = {"label_min": 0, "label_max": 4, "label_step": 1}
RECORDS = 2000
# Beam's YAML and what it imports warn of their own deprecations.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("yaml")]


@pytest.fixture(scope="module")
def csv_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """id, x and y of 2,000 records; y is in 0..4, or missing in two of them."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    lines = [f"u{i},{i / 8},{'' if i in (7, 11) else i % 5}" for i in range(RECORDS)]
    path.write_text("\n".join(["id,x,y", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def rows_job(csv_log: Path, key_file: Path, run_yaml: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """label_dp.yaml over it: the folder with its outputs."""
    folder = tmp_path_factory.mktemp("rows")
    variables = DOMAIN | {
        "input": csv_log, "output": folder / "rows", "release": folder / "release", "label": "y", "id_column": "id",
        "epsilon": 2, "noise_key_file": key_file, "mechanism": "unbiased",
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
    # Beam writes JSON with ten decimals.
    assert {row["y"] for row in rows.values()} == {round(output, 10) for output in mechanism["outputs"]}
    # Not all of one label became one output: there is noise.
    assert len(Counter(row["y"] for name, row in rows.items() if int(name[1:]) % 5 == 0)) > 1


def test_the_release_says_what_it_cost_and_passes_the_audit(rows_job: Path, tmp_path: Path) -> None:
    from labeldp.pipelines.cli import main

    (release,) = json_lines(rows_job, "release")
    manifest = json.loads(release["manifest"])
    (tmp_path / "mechanism.json").write_text(release["mechanism"])

    assert main(["audit", str(tmp_path / "mechanism.json")]) == 0
    assert manifest["epsilon"] == 2
    assert (manifest["records"], manifest["records_without_label"]) == (RECORDS - 2, 2)
    assert manifest["identity"] == "id"
    assert manifest["certified_epsilon"] <= 2


def test_files_give_the_bytes_of_the_command(
    key_file: Path, run_yaml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.pipelines.cli import main

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    log = tmp_path / "log.parquet"
    columns = {"x": [i / 8 for i in range(RECORDS)], "weeks": [i % 5 for i in range(RECORDS)]}
    pq.write_table(pa.table(columns), log)
    flags = {"label": "weeks", "epsilon": 1, "noise_key_file": key_file, "num_shards": 2} | DOMAIN
    run_yaml("privatize_files", flags | {"input": log, "output": tmp_path / "yaml"})
    others = {"input": log, "input_format": "parquet", "output": tmp_path / "command"}
    assert main(["privatize", *(f"--{name}={value}" for name, value in (flags | others).items())]) == 0

    shards = sorted((tmp_path / "command" / "data").iterdir())
    assert len(shards) == 2
    for shard in shards:
        assert (tmp_path / "yaml" / shard.name).read_bytes() == shard.read_bytes()


def test_input_that_changes_between_the_passes_is_not_released(key_file: Path) -> None:
    from labeldp.templates.beam_yaml import _unchanged
    from labeldp.transforms import InputError, NoiseBinding

    binding: Any = NoiseBinding(digest=1, column="y", domain=(0.0, 1.0), epsilons=(0.1, 0.9), records=3, unusable=0)
    batch: Any = object()
    assert _unchanged(batch, binding, 1) is batch
    with pytest.raises(InputError, match="the input changed"):
        _unchanged(batch, binding, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"label_min": None}, "the public label domain"),
        ({"label_values": [0, 1]}, "the public label domain"),
        ({"label_step": 0}, "label_step"),
        ({"epsilon": -1}, "epsilon"),
        ({"prior_epsilon": 2}, "prior_epsilon"),
        ({"mechanism": "magic"}, "unknown mechanism 'magic'"),
        ({"id_column": "y"}, "id_column"),
        ({"parameters": {"bias": 1}}, "no parameter 'bias'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_job_runs(arguments: dict[str, Any], said: str) -> None:
    from labeldp.templates.beam_yaml import LabelDP

    standard = {"label": "y", "id_column": "id", "epsilon": 1, "noise_key_file": "noise.key", **DOMAIN}
    with pytest.raises(ValueError, match=said):
        LabelDP(**{**standard, **arguments})


@pytest.mark.parametrize(
    ("fields", "said"), [({"id": "a"}, "no field 'y'"), ({"y": 1.0}, "no field 'id'"), (None, "no schema")]
)
def test_rows_that_do_not_fit_are_refused_before_the_job_runs(fields: dict[str, Any] | None, said: str) -> None:
    from labeldp.templates.beam_yaml import LabelDP
    from labeldp.transforms import InputError

    transform = LabelDP("y", "id", 1.0, "noise.key", label_min=0, label_max=4, label_step=1)
    elements = beam.Create([beam.Row(**fields)] if fields else ["text"])
    with pytest.raises(InputError, match=said):
        _ = beam.Pipeline() | elements | transform


def test_an_unknown_format_and_a_bad_filter_are_refused() -> None:
    from labeldp.templates.beam_yaml import read_record_batches, write_record_batches

    with pytest.raises(ValueError, match="format must be one of tfrecord, parquet"):
        write_record_batches("out", "csv")
    with pytest.raises(ValueError, match="where takes NAME=VALUE"):
        read_record_batches("in", "csv", where="x")
