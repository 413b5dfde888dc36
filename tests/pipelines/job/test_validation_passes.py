"""--validate: features are checked before any budget is spent, the output before it is released.

Artifacts are read with TFDV's own functions.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from labeldp.transforms.validation.tensorflow_libraries import describe_anomalies

ARTIFACTS = {"feature_stats.pb", "output_stats.pb", "schema.pbtxt", "anomalies.pbtxt"}
DOMAIN = {"label_min": 0, "label_max": 52, "label_step": 1, "epsilon": 1}


@pytest.fixture(scope="session")
def tfdv() -> Any:
    from labeldp.transforms.validation.validate_examples import _tfdv

    return _tfdv()


@pytest.fixture(scope="module")
def sample(census: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every hundredth record of the census."""
    header, *rows = census.read_text().splitlines()
    path = tmp_path_factory.mktemp("sample") / "census.csv"
    path.write_text("".join(f"{line}\n" for line in [header, *rows[::100]]))
    return path


@pytest.fixture(scope="module")
def released(
    sample: Path, forked: Any, invoke: Any, command: Any, key_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Releases by output format, validated against an inferred schema; one is made in a process without TFDV."""
    folder = tmp_path_factory.mktemp("validated")
    flags = {"input": sample, "input_format": "csv", "label": "work", "noise_key_file": key_file, **DOMAIN}
    for name, call in (("tfrecord", lambda argv: forked(argv).wait()), ("parquet", invoke)):
        argv = command("privatize", flags | {"output": folder / name, "output_format": name, "num_shards": 3})
        outcome = call([*argv, "--validate"]).ok()
        assert outcome.out.splitlines()[1].endswith(", validated against an inferred schema")
        assert outcome.errors == []
    return {name: folder / name for name in ("tfrecord", "parquet")}


def features(tfdv: Any, path: Path) -> dict[str, Any]:
    (dataset,) = tfdv.load_stats_binary(str(path)).datasets
    return {feature.path.step[0]: feature for feature in dataset.features}


@pytest.mark.parametrize("name", ["tfrecord", "parquet"])
def test_the_artifacts_are_tfdv_s(released: dict[str, Path], tfdv: Any, name: str) -> None:
    folder = released[name] / "validation"

    assert {path.name for path in folder.iterdir()} == ARTIFACTS
    schema = tfdv.load_schema_text(str(folder / "schema.pbtxt"))
    assert len(schema.feature) == 8
    assert not tfdv.load_anomalies_text(str(folder / "anomalies.pbtxt")).anomaly_info
    again = tfdv.validate_statistics(tfdv.load_stats_binary(str(folder / "output_stats.pb")), schema)
    assert not again.anomaly_info
    assert json.loads((released[name] / "release.json").read_text())["validation"] == "inferred schema"


@pytest.mark.parametrize("name", ["tfrecord", "parquet"])
def test_features_are_the_same_before_and_after(released: dict[str, Path], tfdv: Any, name: str) -> None:
    folder = released[name] / "validation"
    before, after = (features(tfdv, folder / f"{which}_stats.pb") for which in ("feature", "output"))

    assert before.keys() == after.keys() - {"work"}
    assert len(before) == 7
    for feature, statistics in before.items():
        assert statistics == after[feature], feature


def test_only_the_privatized_label_has_statistics(
    released: dict[str, Path], sample: Path, read_csv: Any, tfdv: Any, shard_paths: Any
) -> None:
    folder = released["parquet"]
    private = np.array(read_csv(sample)["work"], float)
    public = np.concatenate([pq.read_table(path)["work"].to_numpy() for path in shard_paths(folder)])

    assert b"work" not in (folder / "validation" / "feature_stats.pb").read_bytes()
    label = features(tfdv, folder / "validation" / "output_stats.pb")["work"].num_stats
    assert label.mean == pytest.approx(public.mean(), rel=1e-12)
    assert (label.min, label.max) == (public.min(), public.max())
    assert abs(label.mean - private.mean()) > 1e-6
    assert not np.isin([label.min, label.max, label.median], private).any()


def test_the_schema_says_what_the_label_can_be(released: dict[str, Path], tfdv: Any) -> None:
    schema = tfdv.load_schema_text(str(released["tfrecord"] / "validation" / "schema.pbtxt"))
    outputs = json.loads((released["tfrecord"] / "mechanism.json").read_text())["outputs"]

    label = tfdv.get_feature(schema, "work")
    assert label.float_domain.min == pytest.approx(outputs[0], rel=1e-6)
    assert label.float_domain.max == pytest.approx(outputs[-1], rel=1e-6)


def test_the_report_shows_it(released: dict[str, Path], invoke: Any, tmp_path: Path) -> None:
    invoke(["report", str(released["tfrecord"]), f"--output={tmp_path / 'page.html'}"]).ok()

    text = (tmp_path / "page.html").read_text()
    assert '<h2 id="validation">Validation</h2>' in text
    assert "The features are unchanged." in text
    rows = dict(
        re.findall(
            r'<tr><th scope="row" class="words"><bdi>(.*?)</bdi>.*?'
            r'<td class="words" data-label="compared with the input">(?:<bdi>)?([^<]*)(?:</bdi>)?</td></tr>',
            text,
            re.S,
        )
    )
    assert {name: rows[name] for name in ("age", "gender1", "work")} == {
        "age": "same", "gender1": "same", "work": "private",
    }  # fmt: skip


def test_the_report_refuses_another_s_validation(released: dict[str, Path], invoke: Any, tmp_path: Path) -> None:
    copy = shutil.copytree(released["tfrecord"], tmp_path / "copy")
    manifest = json.loads((copy / "release.json").read_text())
    (copy / "release.json").write_text(json.dumps(manifest | {"records_without_label": 1}, indent=2) + "\n")
    outcome = invoke(["report", str(copy)])

    assert outcome.code == 1
    assert "validation/ counts other records than release.json" in outcome.error
    assert not (copy / "report.html").exists()


def test_shards_do_not_depend_on_validation(
    released: dict[str, Path], sample: Path, invoke: Any, command: Any, key_file: Path, tmp_path: Path, shard_paths: Any
) -> None:
    """From TFRecord to TFRecord, features are copied undecoded; statistics are those of the decoded files."""
    source = {"input": released["tfrecord"] / "data" / "*", "input_format": "tfrecord", "label": "work"}
    flags = source | {"noise_key_file": key_file, **DOMAIN}
    invoke(command("privatize", flags | {"output": tmp_path / "plain"})).ok()
    invoke([*command("privatize", flags | {"output": tmp_path / "validated"}), "--validate"]).ok()

    plain, validated = ([path.read_bytes() for path in shard_paths(tmp_path / name)] for name in ("plain", "validated"))
    assert len(plain) == 3
    assert plain == validated
    before, first = (
        (folder / "validation" / name).read_bytes()
        for folder, name in ((tmp_path / "validated", "feature_stats.pb"), (released["tfrecord"], "feature_stats.pb"))
    )
    assert len(before) == len(first)


@pytest.fixture
def attempt(sample: Path, invoke: Any, command: Any, key_file: Path, outputs: Path) -> Callable[..., Any]:
    """Function (command="privatize", flag=value, ...) -> the outcome of a job on the sample."""

    def run(name: str = "privatize", switches: Sequence[str] = (), **flags: Any) -> Any:
        standard: dict[str, Any] = {
            "input": sample, "input_format": "csv", "label": "work", "noise_key_file": key_file, **DOMAIN,
        }  # fmt: skip
        if name == "privatize":
            standard |= {"output": outputs / "released", "output_format": "parquet"}
        else:
            standard["mechanism_file"] = outputs / "mechanism.json"
        return invoke([*command(name, standard | flags), *switches])

    return run


def schema_file(released: dict[str, Path], tmp_path: Path, old: str, new: str) -> Path:
    """File with the inferred schema, in which `old` is replaced by `new`."""
    text = (released["tfrecord"] / "validation" / "schema.pbtxt").read_text()
    assert old in text
    path = tmp_path / "schema.pbtxt"
    path.write_text(text.replace(old, new, 1))
    return path


def test_last_week_s_schema_holds(attempt: Any, released: dict[str, Path], outputs: Path, tmp_path: Path) -> None:
    """It is accepted even if its type of the label differs from the raw label, which is not validated."""
    path = schema_file(released, tmp_path, 'name: "work"\n  type: FLOAT', 'name: "work"\n  type: BYTES')
    outcome = attempt(validate=path).ok()

    assert outcome.out.splitlines()[1].endswith(", validated against the given schema")
    assert {file.name for file in (outputs / "released" / "validation").iterdir()} == ARTIFACTS
    assert json.loads((outputs / "released" / "release.json").read_text())["validation"] == "given schema"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (
            "privatize",
            '  value: "female"\n',
            "",
            "feature gender1: Unexpected string values: Examples contain values missing",
        ),
        ("privatize", 'name: "age"\n  type: INT', 'name: "age"\n  type: BYTES', "feature age: Unexpected data type"),
        ("fit", 'name: "other"', 'name: "another"', "feature another: Column dropped"),
    ],
)
def test_anomalies_stop_the_run_before_anything_is_spent(
    attempt: Any, released: dict[str, Path], outputs: Path, tmp_path: Path, name: str, old: str, new: str, words: str
) -> None:
    outcome = attempt(name, validate=schema_file(released, tmp_path, old, new))

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.error.startswith(
        f"labeldp {name}: error: the features do not match the schema, "
        "nothing is privatized; correct them, or give another schema to --validate: "
    )
    assert words in outcome.error
    assert "the prior" not in outcome.err  # the histogram was never counted
    assert list(outputs.iterdir()) == []


def test_fit_checks_features_too(attempt: Any, released: dict[str, Path], outputs: Path) -> None:
    outcome = attempt("fit", validate=released["tfrecord"] / "validation" / "schema.pbtxt").ok()

    assert "validating the features" in outcome.err
    assert {path.name for path in outputs.iterdir()} == {"mechanism.json", "labeldp_ledger.jsonl"}


def test_records_without_a_label_are_counted_before_and_not_after(
    attempt: Any, outputs: Path, tmp_path: Path, write_csv: Any, tfdv: Any
) -> None:
    log = write_csv(tmp_path / "log.csv", [f"{i},{i % 5 if i % 50 else ''}" for i in range(1000)])
    attempt(input=log, label="y", label_max=4, max_unusable_fraction=0.1, switches=["--validate"]).ok()

    folder = outputs / "released" / "validation"
    numbers = [
        tfdv.load_stats_binary(str(folder / name)).datasets[0].num_examples
        for name in ("feature_stats.pb", "output_stats.pb")
    ]
    assert numbers == [1000, 980]


def test_a_filter_applies_to_statistics(attempt: Any, outputs: Path, tfdv: Any) -> None:
    attempt(where="gender1=male", switches=["--validate"]).ok()

    found = features(tfdv, outputs / "released" / "validation" / "feature_stats.pb")
    assert [top.value for top in found["gender1"].string_stats.top_values] == ["male"]


@pytest.mark.parametrize(
    ("name", "switches", "words"),
    [
        ("fit", ["--validate"], "--validate: expected one argument"),
        ("privatize", ["--validate="], "--validate"),
        ("privatize", ["--no_validate=bad.pbtxt"], "--no_validate takes no value, not 'bad.pbtxt'"),
    ],
)  # fmt: skip
def test_bad_usage(attempt: Any, outputs: Path, name: str, switches: list[str], words: str) -> None:
    outcome = attempt(name, switches)
    assert outcome.code == 2
    assert words in outcome.error
    assert list(outputs.iterdir()) == []


def test_anomalies_are_one_line_each() -> None:
    text = """
    anomaly_info { key: "b" value { path { step: "b" } short_description: "Two\\nlines" description: "of  text" } }
    anomaly_info { key: "a" value { path { step: "a" step: "c" } short_description: "Long" description: "%s" } }
    dataset_anomaly_info { short_description: "Low num examples" description: "1 < 2" }
    """

    nested, two, dataset = describe_anomalies(text % ("x" * 1000))

    assert nested.startswith("feature a.c: Long: xxx")
    assert len(nested) < 230
    assert two == "feature b: Two lines: of text"
    assert dataset == "all features: Low num examples: 1 < 2"
