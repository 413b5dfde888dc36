"""`LabelDP` gives what it leaves out, charges a ledger if one is named, and speaks of rows and its parameters."""

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import labeldp
import pytest
from apache_beam.testing.util import assert_that, equal_to
from labeldp.templates.beam_yaml import DeadRow, LabelDP


class Logged(NamedTuple):
    """A row whose id and label may be missing."""

    id: int | None
    unit: str | None
    y: float | None


beam.coders.registry.register_coder(Logged, beam.coders.RowCoder)
LOG = [Logged(i, f"u{i // 3}", float(i % 5)) for i in range(60)]
NO_LABELS = [row._replace(y=None) for row in LOG]


def release(pipeline: beam.Pipeline, rows: list[Logged], arguments: dict[str, Any]) -> Any:
    """The outputs of LabelDP for the rows."""
    return pipeline | beam.Create(rows).with_output_types(Logged) | LabelDP(**arguments)


@pytest.mark.parametrize("unit", [{}, {"unit_column": "unit", "max_records_per_unit": 3}], ids=["records", "units"])
def test_rows_that_are_left_out_are_dead_letters(unit: dict[str, Any], label_dp: dict[str, Any]) -> None:
    left_out = [Logged(None, "a", 1.0), Logged(None, "b", None), Logged(77, "c", None), Logged(78, "d", float("nan"))]
    with beam.Pipeline("FnApiRunner") as pipeline:
        released = release(pipeline, LOG + left_out, label_dp | unit)
        expected = [DeadRow(None, "read", "no id in id")] * 2
        expected += [DeadRow(id, "privatize", "unusable label") for id in ("77", "78")]
        assert_that(released["dead_letters"], equal_to(expected), "Letters")
        assert_that(released["rows"] | beam.Map(lambda row: row.id), equal_to(list(range(60))), "Rows")


@pytest.mark.parametrize("classes", [{}, {"label_classes": ["1", "4"], "mechanism": "rr"}], ids=["numbers", "classes"])
def test_missing_labels_count_as_a_label(classes: dict[str, Any], label_dp: dict[str, Any]) -> None:
    if classes:
        label_dp = {name: value for name, value in label_dp.items() if not name.startswith("label_")}
    with beam.Pipeline("FnApiRunner") as pipeline:
        released = release(pipeline, NO_LABELS, label_dp | {"missing_label": 4, "epsilon": 12} | classes)
        counts: Any = released["rows"] | beam.Map(lambda row: row.y) | beam.combiners.Count.PerElement()
        # A label is kept with a chance of 0.9999 or more.
        assert_that(counts | beam.Filter(lambda pair: pair[0] == 4.0 and pair[1] > 50) | beam.Map(lambda _: 1),
                    equal_to([1]))  # fmt: skip


# Faults that only a run finds, with the message. A parameter is between backquotes, as in all errors of stages.
FAULTS: dict[str, tuple[list[Logged], dict[str, Any], str]] = {
    "no rows": ([], {}, "the input is empty: there are no rows with an id"),
    "no label": (NO_LABELS, {}, "give `missing_label` 0; otherwise check `label`"),
    "few labels": (
        [row if row.id == 3 else row._replace(y=None) for row in LOG], {},
        "59 of 60 records have no usable label in 'y' (missing, several, NaN or infinite), more than "
        "`max_unusable_fraction` 0.5: if a missing label means a value that is still to come, as no conversion yet, "
        "give `missing_label` 0; otherwise fix them, exclude them by a beam.Filter before",
    ),
    "few ids": (
        [row if row.id == 3 else row._replace(id=None) for row in LOG], {},
        "59 of 60 rows have no id in 'id' (`id_column`), more than `max_unusable_fraction` 0.5: fix them, exclude them "
        "by a beam.Filter before, or raise the threshold",
    ),
    "an id twice": ([*LOG, *LOG], {}, "have the same id in `id_column` id: ids must be unique"),
    "no unit": (
        [row._replace(unit=None) for row in LOG], {"unit_column": "unit", "max_records_per_unit": 1},
        "no record with a usable label has a unit: check `unit_column`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "more", "message"), FAULTS.values(), ids=FAULTS)
def test_errors_of_a_run_speak_of_rows(
    rows: list[Logged], more: dict[str, Any], message: str, label_dp: dict[str, Any]
) -> None:
    with pytest.raises(labeldp.InputError) as caught, beam.Pipeline("FnApiRunner") as pipeline:
        release(pipeline, rows, label_dp | more)
    text = str(caught.value)
    assert message in text
    line = next(line for line in text.splitlines() if message in line)
    assert "--" not in line
    assert "`where`" not in line
    named = {word for place, word in enumerate(line.split("`")) if place % 2}
    assert named <= inspect.signature(LabelDP.__init__).parameters.keys()


def test_a_release_is_charged_once_and_within_caps(label_dp: dict[str, Any], tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    arguments = label_dp | {"ledger": str(ledger), "epsilon_cap": 1}
    for _ in range(2):
        with beam.Pipeline("FnApiRunner") as pipeline:
            released = release(pipeline, LOG, arguments)
            assert_that(released["release"] | beam.Map(lambda row: json.loads(row.manifest)["epsilon"]), equal_to([1]))
    first, again = map(json.loads, ledger.read_text().splitlines())
    assert [first["charges"], first["request"]] == [again["charges"], again["request"]]
    assert sum(charge["epsilon"] for charge in first["charges"]) == pytest.approx(1, abs=1e-9)
    noted = tmp_path / "noted"
    message = "epsilon_cap 1 would be exceeded: with this run the epsilon spent is 2"
    with pytest.raises(ValueError, match=f"^{message}"):
        release(beam.Pipeline(), LOG, arguments | {"mechanism": "rr_on_bins"})
    # A request that the ledger has may start: another input is found when it is charged, before any output.
    pipeline = beam.Pipeline("FnApiRunner")
    for name, output in release(pipeline, [*LOG[1:], Logged(None, "a", 1.0)], arguments).items():
        _ = output | f"Note {name}" >> beam.Map(lambda _: noted.touch())
    with pytest.raises(labeldp.InputError, match=rf"^{message} \(ledger"):
        pipeline.run()
    assert not noted.exists()


def test_a_ledger_that_workers_cannot_reach_is_refused(label_dp: dict[str, Any], tmp_path: Path) -> None:
    arguments = label_dp | {"ledger": str(tmp_path / "ledger.jsonl")}
    with pytest.raises(ValueError, match=r"^ledger .* is not on a filesystem that workers of this runner share"):
        release(beam.Pipeline("FlinkRunner"), LOG, arguments)
    with pytest.raises(ValueError, match=r"^ledger has a password, which the job graph would show"):
        release(beam.Pipeline(), LOG, label_dp | {"ledger": "postgresql://me:secret@host/db"})
    with pytest.raises(ValueError, match=r"^epsilon_cap needs ledger"):
        LabelDP(**label_dp, epsilon_cap=1)


@pytest.mark.parametrize("transform", [LabelDP, labeldp.PrivatizeFiles])
def test_beam_yaml_knows_types_and_what_is_needed(transform: Any) -> None:
    providers = pytest.importorskip("apache_beam.yaml.yaml_provider", reason="no extra yaml")
    atomic = pytest.importorskip("apache_beam.portability.api.org.apache.beam.model.pipeline.v1.schema_pb2").AtomicType
    fields = {
        field.name: field.type for field in providers.InlineProvider.config_schema_from_callable(transform).fields
    }
    needed = {"label", "epsilon"} | ({"id_column", "noise_key_file"} if transform is LabelDP else {"input", "output"})
    assert {name for name, kind in fields.items() if not kind.nullable} == needed
    kinds = {"epsilon": "DOUBLE", "label": "STRING", "max_records_per_unit": "INT64", "epsilon_cap": "DOUBLE"}
    assert {name: atomic.Name(fields[name].atomic_type) for name in kinds} == kinds
    # Numbers or text, and lists or text, which a schema has no type for.
    untyped = {name for name, kind in fields.items() if kind.WhichOneof("type_info") != "atomic_type"}
    assert untyped >= {"label_min", "label_values", "leave_out"}
    assert Counter(name in untyped for name in fields)[False] > len(untyped)
