"""Streaming input: a fitted mechanism over unbounded, windowed records; noise binding; refused inputs."""

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream as beam_streams
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.noise.keyed_words import integer_identities, labelled_words, words
from labeldp.transforms import (
    BatchesToRows,
    InputError,
    LabelColumn,
    NoiseKeyFile,
    NoisyPrior,
    PrivatizeLabels,
    RowsToBatches,
    StreamBinding,
)

from tests.docs.pages import blocks
from tests.false_alarms import chi_square_bounds

DOMAIN = (0.0, 1.0, 2.0, 3.0)
COLUMN = LabelColumn("y", DOMAIN, "id")
RR = solve("rr", Prior(np.array(DOMAIN), np.ones(4)), 1.0)
FIELDS = {"id": str, "y": float}
KEY = bytes(range(32))


def events(labels: dict[str, float]) -> list[beam.Row]:
    """One event per id, with its label."""
    return [beam.Row(id=name, y=label) for name, label in labels.items()]


def stream(*parts: tuple[float, list[beam.Row]]) -> beam_streams.TestStream:
    """A TestStream of the parts: events at the given times, with the watermark advanced after each part."""
    source = beam_streams.TestStream(coder=beam.coders.FastPrimitivesCoder())
    for time, rows in parts:
        source = source.add_elements([TimestampedValue(row, time) for row in rows]).advance_watermark_to(time + 1)
    return source.advance_watermark_to_infinity()


def as_events(rows: Any) -> Any:
    """Restores the schema of the rows, which a TestStream does not keep."""
    kind = RowTypeConstraint.from_fields(list(FIELDS.items()))
    return rows | "AsEvents" >> beam.Map(lambda row: row).with_output_types(kind)


@pytest.fixture
def streamed(key: NoiseKeyFile, tmp_path: Path) -> Any:
    """(release, (time, rows), ...) -> [(window's start, id, privatized label), ...]."""

    def run(release: str, *parts: tuple[float, list[beam.Row]]) -> list[tuple[float, str, float]]:
        log = tmp_path / "found"
        log.write_text("")

        def write(row: Any, window: Any = beam.DoFn.WindowParam) -> None:
            with log.open("a") as file:
                file.write(json.dumps([float(window.start), row.id, row.y]) + "\n")

        with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as pipeline:
            windows = as_events(pipeline | stream(*parts)) | beam.WindowInto(FixedWindows(60))
            assert not windows.is_bounded
            batches: Any = windows | RowsToBatches("id")
            privatized: Any = batches | PrivatizeLabels(RR, StreamBinding(release), COLUMN, key)
            assert privatized.digest is None
            _ = privatized.batches | BatchesToRows(FIELDS, "y") | beam.Map(write)
        return sorted(tuple(json.loads(line)) for line in log.read_text().splitlines())

    return run


LABELS = {f"event {i}": float(i % 4) for i in range(40)}


def test_events_keep_their_windows_and_get_their_noise(streamed: Any) -> None:
    early, late = dict(list(LABELS.items())[:25]), dict(list(LABELS.items())[25:])
    found = streamed("ads", (10, events(early)), (130, events(late)))

    assert {name: window for window, name, _ in found} == dict.fromkeys(early, 0.0) | dict.fromkeys(late, 120.0)
    assert {label for _, _, label in found} <= set(DOMAIN)
    assert [label for _, name, label in found] != [LABELS[name] for _, name, _ in found]
    # The same events in other parts and at other times, delivered twice, have the same outputs.
    again = streamed("ads", *((10 + 61 * i, events({name: label})) for i, (name, label) in enumerate(LABELS.items())))
    doubled = streamed("ads", (10, events(LABELS)), (20, events(early)))
    outputs = {name: label for _, name, label in found}
    assert {name: label for _, name, label in again} == outputs
    assert all(outputs[name] == label for _, name, label in doubled)
    assert len(doubled) == len(LABELS) + len(early)
    other = streamed("ads, once more", (10, events(LABELS)))
    assert {name: label for _, name, label in other} != outputs


def test_words_are_bound_to_name_and_label() -> None:
    names = integer_identities("id", np.arange(4096))
    zero, one = (labelled_words(KEY, b"f", names, np.full(4096, label)) for label in (0.0, 1.0))

    assert len(set(zero.tolist()) | set(one.tolist()) | set(words(KEY, b"f", names).tolist())) == 3 * 4096
    assert np.array_equal(zero, labelled_words(KEY, b"f", names, np.full(4096, -0.0)))
    for other in (labelled_words(bytes(32), b"f", names, zero * 0.0), labelled_words(KEY, b"g", names, zero * 0.0)):
        assert not np.any(other == zero)
    mixed = labelled_words(KEY, b"f", names, np.where(np.arange(4096) % 2, 1.0, 0.0))
    assert np.array_equal(mixed[::2], zero[::2])
    assert np.array_equal(mixed[1::2], one[1::2])
    same = integer_identities("id", np.full(4096, 4096))
    assert not np.any(labelled_words(KEY, b"f", same, np.arange(4096.0)) == zero)


@pytest.mark.parametrize("labels", [np.zeros(1 << 16), np.arange(float(1 << 16))])
def test_words_are_uniform_and_independent_of_those_of_other_labels(labels: np.ndarray) -> None:
    names = integer_identities("id", np.arange(1 << 16))
    here = labelled_words(KEY, b"f", names, labels) >> np.uint64(60)
    there = labelled_words(KEY, b"f", names, labels + 1) >> np.uint64(60)
    pairs = np.bincount((here * 16 + there).astype(int), minlength=256)
    statistic = ((pairs - 256.0) ** 2 / 256).sum()

    assert statistic < chi_square_bounds(255)[1]


def test_fitting_refuses_a_stream(key: NoiseKeyFile) -> None:
    batches: Any = as_events(beam.Pipeline() | stream((0, events(LABELS)))) | RowsToBatches("id")
    with pytest.raises(InputError, match="unbounded input is never complete: fit on a bounded part"):
        _ = batches | NoisyPrior(COLUMN, 1.0, key)


def test_a_stream_needs_a_binding_of_its_own_and_ids(key: NoiseKeyFile) -> None:
    pipeline = beam.Pipeline()
    batches: Any = as_events(pipeline | stream((0, events(LABELS)))) | RowsToBatches("id")
    binding: Any = pipeline | beam.Create([None])
    with pytest.raises(InputError, match="give a StreamBinding"):
        _ = batches | PrivatizeLabels(RR, binding, COLUMN, key)
    with pytest.raises(ValueError, match="give an id_column"):
        PrivatizeLabels(RR, StreamBinding("ads"), LabelColumn("y", DOMAIN), key)


def test_the_example_of_the_guide_around_a_linear_center(
    key: NoiseKeyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`labeldp fit --center linear` over a log, then the guide's code over a stream of other events."""
    from labeldp.pipelines.cli.commands import main

    rng = np.random.default_rng(3)
    numbers = rng.uniform(0, 20, 600)
    labels = np.clip(np.rint(numbers + rng.normal(0, 1, 600)), 0, 20)
    log = "".join(f"e{i},{x!r},{y:g}\n" for i, (x, y) in enumerate(zip(numbers.tolist(), labels.tolist(), strict=True)))
    (tmp_path / "log.csv").write_text("id,x,weeks\n" + log)
    monkeypatch.chdir(tmp_path)
    flags = "--label=weeks --label_min=0 --label_max=20 --label_step=1 --epsilon=4 --center=linear --mechanism=rr"
    source = "--input=log.csv --input_format=csv --id_column=id --mechanism_file=mechanism.json"
    assert main(["fit", *source.split(), *flags.split(), f"--noise_key_file={key.path}"]) == 0
    mechanism = json.loads((tmp_path / "mechanism.json").read_text())
    assert [each["name"] for each in mechanism["center"]["linear"]["encoders"]] == ["x"]

    names: dict[str, Any] = {}
    exec(blocks("docs/guides/engines.md", "Streaming input", "python")[0].text, names)
    events_of = [beam.Row(id=f"new {i}", x=float(i % 20), weeks=float(i % 20)) for i in range(60)]
    kind = RowTypeConstraint.from_fields([("id", str), ("x", float), ("weeks", float)])

    def write(row: Any) -> None:
        with (tmp_path / "found").open("a") as file:
            file.write(json.dumps(row._asdict()) + "\n")

    with beam.Pipeline("BundleBasedDirectRunner", options=PipelineOptions(["--streaming"])) as pipeline:
        rows: Any = pipeline | stream((10, events_of[:25]), (130, events_of))
        typed = rows | beam.Map(lambda row: row).with_output_types(kind)
        _ = names["privatize_around_center"](typed | beam.WindowInto(FixedWindows(60))) | beam.Map(write)
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert len(found) == 85
    outputs = set(np.round(mechanism["outputs"], 9))
    assert all(round(row["weeks"] - row["weeks_center"], 9) in outputs for row in found)
    assert np.corrcoef([row["x"] for row in found], [row["weeks_center"] for row in found])[0, 1] > 0.9
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == 60
    assert all(by_id[row["id"]] == row for row in found), "delivered twice, with the same output"
