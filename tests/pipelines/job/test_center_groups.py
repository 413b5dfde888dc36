"""`--center_groups` in whole jobs: formats, fit and apply, the audit of the records, tampered files, and refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

ROWS = 3000
FLAGS = {"label": "y", "label_min": 0, "label_max": 60, "label_step": 1, "epsilon": 4, "mechanism": "unbiased"}
GROUPS = FLAGS | {"center_column": "guess", "center_groups": "kind=narrow,wide"}


def log_table() -> pa.Table:
    rng = np.random.default_rng(4)
    kinds = rng.integers(0, 2, ROWS)
    guess = rng.uniform(0, 60, ROWS)
    labels = np.clip(np.rint(guess + rng.normal(0, np.where(kinds, 12, 2))), 0, 60)
    names = np.array(["narrow", "wide"], object)[kinds]
    names[::50], names[1::50] = None, "other"
    columns = {"id": np.arange(ROWS), "guess": guess, "kind": pa.array(names), "code": kinds * 7, "flag": kinds == 1}
    return pa.table({**columns, "y": labels})


@pytest.fixture(scope="module")
def log_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "log.csv"
    pa_csv.write_csv(log_table(), path)
    return path


@pytest.fixture(scope="module")
def released(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A release from CSV to Parquet, and what the command printed."""
    output = tmp_path_factory.mktemp("groups") / "released"
    flags = {"input": log_csv, "input_format": "csv", "output": output, "noise_key_file": key_file}
    outcome = invoke(command("privatize", flags | GROUPS | {"output_format": "parquet", "id_column": "id"})).ok()
    return output, outcome.out


def places_of(table: pa.Table) -> np.ndarray:
    return np.array([{"narrow": 0, "wide": 1}.get(name, 2) for name in table["kind"].to_pylist()])


def outputs_of(mechanism: dict[str, Any]) -> np.ndarray:
    """Residuals that the outputs stand for in each group, shape (groups, outputs)."""
    outputs, labels = np.array(mechanism["outputs"]), mechanism["labels"]
    shares = (outputs - labels[0]) / (labels[-1] - labels[0])
    return np.array([low + shares * (high - low) for low, high in mechanism["group_ranges"]])


def centers_of(table: pa.Table) -> np.ndarray:
    return np.clip(np.floor(table["guess"].to_numpy().astype(np.float32).astype(float) + 0.5), 0, 60)


def test_labels_are_outputs_in_the_range_of_their_group(released: tuple[Path, str]) -> None:
    output, printed = released
    table, before = pq.read_table(output / "data"), log_table()
    mechanism = json.loads((output / "mechanism.json").read_text())
    (low, high), (first, last), _ = mechanism["group_ranges"]
    assert high - low < (last - first) / 2
    table_of_outputs, groups = outputs_of(mechanism), places_of(before)
    offsets = table["y"].to_numpy() - centers_of(before)
    assert np.abs(offsets[:, None] - table_of_outputs[groups]).min(axis=1).max() < 1e-9
    errors = table["y"].to_numpy() - before["y"].to_numpy()
    narrow, wide = errors[groups == 0], errors[groups == 1]
    # With ids, draws are the same in every run.
    assert narrow.std() < wide.std() / 2
    assert abs(narrow.mean()) < 5 * narrow.std() / len(narrow) ** 0.5 + 0.2
    assert f"groups     kind: narrow {low}..{high}, wide {first}..{last}, others " in printed
    assert "residuals clipped to the range of their group" in printed


def test_manifest_and_mechanism_state_the_groups(released: tuple[Path, str]) -> None:
    output, _ = released
    release, mechanism = (json.loads((output / name).read_text()) for name in ("release.json", "mechanism.json"))
    groups = np.bincount(places_of(log_table())).tolist()
    assert mechanism["center"]["groups"] == {"column": "kind", "values": ["narrow", "wide"], "records": groups}
    ranges = zip(["narrow", "wide", None], mechanism["group_ranges"], groups, strict=True)
    expected = [{"value": v, "min": float(a), "max": float(b), "records": n} for v, (a, b), n in ranges]
    assert release["center"]["groups"] == {"column": "kind", "ranges": expected}
    assert release["features"] == 3, "kind, code and flag: the column of the groups is a feature"


def test_fit_and_apply_give_the_bytes_of_privatize(
    released: tuple[Path, str], log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path, tree: Any
) -> None:
    output, _ = released
    input = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "id_column": "id"}
    file, applied = tmp_path / "m.json", tmp_path / "applied"
    invoke(command("fit", input | GROUPS | {"mechanism_file": file})).ok()
    flags = {"label": "y", "mechanism_file": file, "output": applied, "output_format": "parquet"}
    invoke(command("apply", input | flags)).ok()
    assert tree(applied / "data") == tree(output / "data")
    assert (applied / "mechanism.json").read_bytes() == (output / "mechanism.json").read_bytes()
    assert (
        json.loads((applied / "release.json").read_text())["center"]
        == (json.loads((output / "release.json").read_text())["center"])
    )
    invoke(["audit", str(file)]).ok()
    assert "group" in invoke(command("apply", input | flags | {"label": "kind"})).error
    outcome = invoke(command("apply", input | flags | {"output": tmp_path / "no", "center_groups": "kind"}))
    assert outcome.code == 2
    assert "labeldp apply: error: --center_groups is set by the mechanism file; leave it out" in outcome.error


def test_a_repeated_run_costs_nothing_and_other_groups_are_charged(
    released: tuple[Path, str], log_csv: Path, key_file: Path, invoke: Any, command: Any, spent: Any, tree: Any
) -> None:
    output, _ = released
    flags = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "output_format": "parquet"}
    before = spent(output.parent)
    again = output.parent / "again"
    invoke(command("privatize", flags | GROUPS | {"id_column": "id", "output": again})).ok()
    assert tree(again / "data") == tree(output / "data")
    assert spent(output.parent) == before
    other = {"id_column": "id", "output": output.parent / "other", "center_groups": "kind=narrow"}
    invoke(command("privatize", flags | GROUPS | other)).ok()
    assert spent(output.parent) > before + 3.9


@pytest.fixture(scope="module")
def tfrecords(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A release of TFRecords as TFRecords, with a linear center, grouped by the values of a number."""
    pytest.importorskip("google_crc32c")
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    folder = tmp_path_factory.mktemp("tfrecords")
    log = folder / "log.tfrecord"
    (batch,) = log_table().to_batches()
    log.write_bytes(bytes(frame(encode_examples(batch))))
    flags = {"input": log, "input_format": "tfrecord", "output": folder / "released", "noise_key_file": key_file}
    invoke(
        command("privatize", flags | FLAGS | {"center": "linear", "center_groups": "code=0,7", "num_shards": 2})
    ).ok()
    return folder / "released"


def test_releases_in_both_formats_pass_the_audit_of_their_records(
    released: tuple[Path, str], tfrecords: Path, invoke: Any
) -> None:
    for output in (released[0], tfrecords):
        report = invoke(["audit", str(output), "--data"]).ok().out
        assert "is an output of the mechanism in the range of its group" in report
        assert "sets of outputs agree with the channel" in report
        assert "\ngroups       3 of column '" in report


@pytest.mark.parametrize("change", ["label", "group"])
def test_a_label_of_another_group_fails_the_audit(
    released: tuple[Path, str], invoke: Any, tmp_path: Path, change: str
) -> None:
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    (shard,) = (output / "data").iterdir()
    table, mechanism = pq.read_table(shard), json.loads((output / "mechanism.json").read_text())
    row = int(np.argmax(places_of(table) == 0))
    column = table["y" if change == "label" else "kind"].to_pylist()
    if change == "label":
        own, other, _ = outputs_of(mechanism)
        strange = next(value for value in other if np.abs(own - value).min() > 1e-6)
        column[row] = float(centers_of(table)[row] + strange)
    else:
        column[row] = "wide"
    name = "y" if change == "label" else "kind"
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, pa.array(column)), shard)
    outcome = invoke(["audit", str(output), "--data"])
    assert outcome.code == 1
    assert (
        f"data/{shard.name} has 1 labels that are no output of the mechanism around the record's center, in the range "
        f"of its group, first in record {row}" in outcome.out
    )


def test_labels_from_another_channel_fail_the_audit(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    """All labels are outputs of their group, but those nearest to the true ones: nothing was randomized."""
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    (shard,) = (output / "data").iterdir()
    table, before = pq.read_table(shard), log_table()
    own = outputs_of(json.loads((output / "mechanism.json").read_text()))[places_of(before)]
    residuals = before["y"].to_numpy() - centers_of(before)
    nearest = np.abs(own - residuals[:, None]).argmin(axis=1)
    # As the job adds them, in units of one label per step.
    mechanism = json.loads((output / "mechanism.json").read_text())
    outputs, labels = np.array(mechanism["outputs"]), mechanism["labels"]
    lows, highs = np.array(mechanism["group_ranges"]).T[:, :, None]
    tables = lows + (outputs - labels[0]) * ((highs - lows) / (labels[-1] - labels[0]))
    values = centers_of(before) + tables[places_of(before), nearest]
    pq.write_table(table.set_column(table.schema.get_field_index("y"), "y", pa.array(values)), shard)
    outcome = invoke(["audit", str(output), "--data"])
    assert outcome.code == 1
    assert "the labels were not drawn from the channel for the noised histogram" in outcome.out


def tampered(mechanism: dict[str, Any], change: str) -> None:
    groups = mechanism["center"]["groups"]
    if change == "range":
        mechanism["group_ranges"][0][1] += 1
    elif change == "outside":
        mechanism["group_ranges"][0][1] = 61
    elif change == "missing":
        del mechanism["group_ranges"]
    elif change == "fewer":
        mechanism["group_ranges"].pop()
    elif change == "values":
        groups["values"][1] = "narrow"
    elif change == "shares":
        groups["records"][0] += 500
    elif change == "none":
        groups["records"] = [0, 0, 0]
    else:
        mechanism["center"]["counts"].pop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("range", "labels are not even positions over the root mean square length of group_ranges"),
        ("outside", "group_ranges has a range that is not one of residuals of center.domain"),
        ("missing", "group_ranges is missing"),
        ("fewer", "group_ranges has 2 ranges for 3 groups"),
        ("values", "center.groups.values has a value twice"),
        ("shares", "labels are not even positions over the root mean square length of group_ranges"),
        ("none", "center.groups.records are all 0"),
        ("counts", "center.counts do not have one count for each cell, for one to all groups"),
    ],
)
def test_a_tampered_mechanism_fails_the_audit_and_is_not_applied(
    released: tuple[Path, str],
    log_csv: Path,
    key_file: Path,
    invoke: Any,
    command: Any,
    tmp_path: Path,
    change: str,
    said: str,
) -> None:
    mechanism = json.loads((released[0] / "mechanism.json").read_text())
    tampered(mechanism, change)
    file = tmp_path / "m.json"
    file.write_text(json.dumps(mechanism))
    outcome = invoke(["audit", str(file)])
    assert outcome.code == 1
    assert said in outcome.out
    flags = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "label": "y"}
    outcome = invoke(command("apply", flags | {"mechanism_file": file, "output": tmp_path / "out"}))
    assert outcome.code == 2
    assert outcome.error.startswith(f"labeldp apply: error: --mechanism_file {file} cannot be used: ")


def test_a_manifest_with_another_range_fails_the_audit(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    output = tmp_path / "released"
    shutil.copytree(released[0], output)
    release = json.loads((output / "release.json").read_text())
    release["center"]["groups"]["ranges"][1]["max"] += 1.0
    (output / "release.json").write_text(json.dumps(release))
    outcome = invoke(["audit", str(output)])
    assert outcome.code == 1
    assert "release.center.groups is not that of mechanism.json" in outcome.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"center_column": None}, "--center_groups needs a center: give --center cells or --center_column"),
        ({"center_groups": "y=1"}, "--center_groups must be another column than --label"),
        ({"center_groups": "id=1"}, "--center_groups must be another column than --id_column"),
        ({"center_groups": "guess=1"}, "--center_groups: 'guess' holds double, neither text nor integers nor booleans"),
        ({"center_groups": "missing=1"}, "has no column 'missing' in its first records"),
        ({"center_groups": "kind="}, "--center_groups takes NAME=V1,V2,..., not 'kind='"),
        ({"center_groups": "kind"}, "--center_groups takes NAME=V1,V2,..., not 'kind'"),
        ({"center_groups": "=a"}, "--center_groups takes NAME=V1,V2,..., not '=a'"),
        ({"center_groups": "kind=a,a"}, "--center_groups: two groups have the same value of 'kind'"),
        ({"center_groups": "kind=" + ",".join("abcdefghijklmnop")}, "groups need 1 to 15 values, not 16"),
        ({"center_groups": "code=0,x"}, "--center_groups: the column holds integers, and 'x' is none"),
        ({"center_groups": "flag=yes"}, "--center_groups: 'yes' is neither true nor false"),
    ],
)
def test_wrong_flags_are_refused(
    log_csv: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path, flags: dict[str, Any], said: str
) -> None:
    given = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "output": tmp_path / "out"}
    asked = {name: value for name, value in (given | GROUPS | {"id_column": "id"} | flags).items() if value is not None}
    outcome = invoke(command("privatize", asked))
    assert outcome.code == 2
    assert said in outcome.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("declared", "values"), [("flag=True,false", ["1", "0"]), ("code=07,+3", ["7", "3"])])
def test_values_are_written_as_records_have_them(
    log_csv: Path, declared: str, values: list[str], tmp_path: Path, key_file: Path, command: Any
) -> None:
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.spec.fields import Fields
    from labeldp.pipelines.spec.make_release import make_release

    flags = {"input": log_csv, "input_format": "csv", "noise_key_file": key_file, "output": tmp_path / "out"}
    args, _ = parse(command("privatize", flags | GROUPS | {"center_groups": declared}))
    groups = make_release("privatize", Fields.of(vars(args))).labels[0].column.groups
    assert groups is not None
    assert list(groups.values) == values


def test_the_report_lists_the_ranges(released: tuple[Path, str], invoke: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    invoke(["report", str(released[0]), "--output", str(tmp_path / "report.html")]).ok()
    text = (tmp_path / "report.html").read_text()
    assert "Residuals are clipped to a range for each value of the public column" in text
    assert "<bdi>kind</bdi> = <bdi>narrow</bdi>: residuals " in text
    assert "all others: residuals " in text
