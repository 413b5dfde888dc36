"""Centers as an attacker sees them, pass by pass: fresh noise, sensitivity, what elements, logs and errors show."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center import linear_center
from labeldp.mechanisms.center.cell_center import CellCenter, CellTables, ends_in_steps
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.class_center import ClassCenter
from labeldp.mechanisms.center.class_document import class_document
from labeldp.mechanisms.center.class_model import ClassModel, center_fingerprint
from labeldp.mechanisms.center.linear_center import LinearCenter
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.noise.noisy_histogram import HISTOGRAM_SENSITIVITY, noisy_counts
from labeldp.mechanisms.release import center_passes
from labeldp.mechanisms.release.center_passes import CenterPass
from labeldp.mechanisms.release.drawing import FromCenter
from labeldp.mechanisms.release.feature_sample import CenterFeatures
from labeldp.mechanisms.release.label_records import PassSums
from labeldp.mechanisms.release.plan import Histogram, passes_of
from labeldp.mechanisms.release.prior_release import PriorRelease
from labeldp.mechanisms.release.unit_bound import SINGLE, UnitBound
from labeldp.transforms import (
    InputError,
    LabelColumn,
    LabelMeaning,
    NoiseKeyFile,
    NoisyPrior,
    PrivatizeLabels,
    release_passes,
)
from labeldp.transforms.batches import Carried
from labeldp.transforms.center.append_center import append_center
from labeldp.transforms.center.feature_sample import SampleFeatures
from labeldp.transforms.release_passes import DesignPass, MergePasses, ReleasePass, summarize

from tests.commands import write_key

ROWS, SAMPLED = 3000, 1500
"""There are more records than a sample holds."""
FEATURES = ("a", "b", "word")
SENTINEL = "sentinel7361"
CLASSES = LabelClasses(("low", "mid", "high"))


@dataclass(frozen=True)
class Kind:
    """A kind of center: its request, the values of its labels, and what its passes release.

    Attributes:
      column: The private column.
      features: The features.
      epsilon: Budget of a record.
      values: Three labels: the least, the middle, and the largest.
      of: Type of the center.
    """

    column: LabelColumn
    features: CenterFeatures
    epsilon: float
    values: tuple[Any, ...]
    of: type

    @property
    def classes(self) -> bool:
        return self.column.classes is not None

    @property
    def passes(self) -> tuple[Any, ...]:
        return tuple(step for step in passes_of(self.column, Histogram(self.epsilon), self.features) if not step.binds)

    def columns(self, seed: int = 1) -> dict[str, list[Any]]:
        """Columns of records."""
        rng = np.random.default_rng(seed)
        first, second, code = rng.normal(size=ROWS), rng.normal(size=ROWS), rng.integers(0, 3, ROWS)
        signal = 4 * first + 2 * np.sign(first) * second + code
        labels = np.clip(np.rint(10 + signal), 0, 20).tolist()
        if self.classes:
            labels = np.array(CLASSES.values)[np.searchsorted([-2, 3], signal + rng.normal(0, 2, ROWS))].tolist()
        return {"a": first.tolist(), "b": second.tolist(), "word": [f"w{each}" for each in code], "y": labels}


NUMBERS = LabelColumn("y", tuple(float(label) for label in range(21)), center="y_center")
CLASS = LabelColumn("y", CLASSES.domain, center="y_probabilities", meaning=LabelMeaning(CLASSES))
ENDS = (0.0, 10.0, 20.0)
KINDS = {
    "linear": Kind(NUMBERS, CenterFeatures(FEATURES, most=SAMPLED), 2.0, ENDS, LinearCenter),
    "cells": Kind(NUMBERS, CenterFeatures(FEATURES, cells=True, most=SAMPLED), 1.0, ENDS, CellCenter),
    "classes": Kind(CLASS, CenterFeatures(FEATURES, cells=True, most=SAMPLED), 2.0, CLASSES.values, ClassCenter),
}
# Kind and place of each pass; the first one of cells is that of a linear center.
STEPS = {"moments": ("linear", 0), "cells": ("cells", 1), "class sums": ("classes", 0), "class cells": ("classes", 1)}


def noise_of_cells(sums: PassSums, center: CellCenter) -> list[int]:
    tables, cells, residuals = CellTables(*sums.sums), center.cells, NUMBERS.residuals
    first, last = residuals.cells_of(np.array(cells.ends)).tolist()
    return [*(cells.counts - tables.counts.sum(axis=0)), *(cells.sums - tables.clipped(first, last, residuals))]


# Noise of a pass: what it has released minus its raw sums.
NOISE: dict[str, Callable[[PassSums, Any], Any]] = {
    "moments": lambda sums, center: center.sums - sums.sums,
    "cells": noise_of_cells,
    "class sums": lambda sums, prior: np.ravel(prior.made.linear.sums) - sums.sums,
    "class cells": lambda sums, prior: np.ravel(prior.made.cells.counts - sums.sums),
}


def center_of(released: Any) -> Any:
    """The center among what passes have released; the histogram without one."""
    return released.made or released if isinstance(released, PriorRelease) else released


def document(center: Any) -> str:
    """All that follows from the released numbers."""
    return json.dumps(class_document(center) if isinstance(center, ClassCenter) else center_document(center))


def fitted(pipeline: Any, kind: Kind, batches: list[Any], key: Any, column: LabelColumn | None = None) -> Any:
    """All elements that a job makes of batches, which each stage reads again."""

    def read(name: str) -> Any:
        return pipeline | f"Read {name}" >> beam.Create(batches, reshuffle=False)

    column, released = column or kind.column, None
    sample: Any = read("sample") | SampleFeatures(kind.features, key)
    made = {"sample": sample}
    if kind.classes:
        released = made["before"] = read("prior") | NoisyPrior(column, kind.epsilon, key)
    for number, one in enumerate(kind.passes):
        design: Any = sample | f"Design {one.name}" >> DesignPass(one, released)
        released = read(one.name) | f"Release {one.name}" >> ReleasePass(one, column, design, key, released)
        made |= {f"design {number}": design, f"released {number}": released}
    return made | {"center": released | "Center" >> beam.Map(center_of)}


@dataclass(frozen=True)
class Step:
    """A pass of a kind of center, and what a job has made for it and by it."""

    kind: Kind
    one: CenterPass
    sample: Any
    design: Any
    before: Any
    released: Any
    secret: bytes

    def sums(self, batch: Any, column: LabelColumn | None = None) -> PassSums:
        return summarize(self.one, batch, column or self.kind.column, self.design, self.before, self.secret)

    def key(self, sums: PassSums, column: LabelColumn | None = None, **others: Any) -> bytes:
        given = {"design": self.design, "released": self.before, "secret": self.secret} | others
        return self.one.noise_key(sums, column or self.kind.column, **given)

    def noise(self, sums: PassSums, noise_key: bytes) -> list[int]:
        """Noise that raw sums get."""
        given = sums, self.kind.column, self.design, self.before, noise_key
        return [int(each) for each in NOISE[self.one.name](sums, self.one.noised(*given))]

    def stage(self, pipeline: Any, batches: list[Any], key: Any, column: LabelColumn | None = None) -> Any:
        """The release of batches by a job."""
        design = pipeline | "design" >> beam.Create([self.design])
        before = None if self.before is None else pipeline | "before" >> beam.Create([self.before])
        read = pipeline | beam.Create(batches, reshuffle=False)
        return {"released": read | ReleasePass(self.one, column or self.kind.column, design, key, before)}


@pytest.fixture(scope="module")
def made(labelled: Any, run: Any, secret: bytes, tmp_path_factory: Any) -> Any:
    """Function (name of a kind) -> all that a job makes of one batch."""
    path = write_key(tmp_path_factory.mktemp("key") / "noise.key", secret)
    known: dict[str, dict[str, Any]] = {}

    def make(name: str) -> dict[str, Any]:
        if name not in known:
            kind, key = KINDS[name], NoiseKeyFile(str(path))
            found = run(lambda pipeline: fitted(pipeline, kind, [labelled(kind.columns())], key))
            known[name] = {each: one for each, (one,) in found.items()}
        return known[name]

    return make


@pytest.fixture(scope="module", params=STEPS)
def step(request: pytest.FixtureRequest, made: Any, secret: bytes) -> Step:
    """Each pass."""
    name, number = STEPS[request.param]
    found, one = made(name), KINDS[name].passes[number]
    assert one.name == request.param
    before = found[f"released {number - 1}"] if number else found.get("before")
    parts = found["sample"], found[f"design {number}"], before, found[f"released {number}"]
    return Step(KINDS[name], one, *parts, secret)


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    """Each kind."""
    return request.param


def same(one: PassSums, other: PassSums) -> bool:
    return np.array_equal(one.sums, other.sums)


def changed(columns: dict[str, Any], rows: list[int], **values: list[Any]) -> dict[str, Any]:
    """Columns with other values in some rows."""
    found = {name: list(column) for name, column in columns.items()}
    for name, column in values.items():
        for row, value in zip(rows, column, strict=True):
            found[name][row] = value
    return found


def features_of(columns: dict[str, Any], *rows: int) -> dict[str, Any]:
    return {name: [columns[name][row] for row in rows] for name in FEATURES}


# The noise.


def swapped_labels(columns: dict[str, Any], values: Any) -> Any:
    """Two records of equal features swap their labels."""
    columns = changed(columns, [1], **features_of(columns, 0))
    return (changed(columns, [0, 1], y=labels) for labels in ([values[0], values[2]], [values[2], values[0]]))


def swapped_features(columns: dict[str, Any], values: Any) -> Any:
    """Two records of one label swap their features: equal releases would tell that their labels are equal."""
    columns = changed(columns, [0, 1], y=[values[1]] * 2)
    return columns, changed(columns, [0, 1], **features_of(columns, 1, 0))


def moved_uncounted(columns: dict[str, Any], values: Any) -> Any:
    """A record moves whose label, the middle one, no moment counts: equal releases would show that label."""
    return (changed(columns, [0], y=[values[1]], a=[number]) for number in (0.5, -0.5))


def moved(columns: dict[str, Any], values: Any) -> Any:
    """A record moves: with the noise of the first sums, two releases would show the exact difference, so its label."""
    return columns, changed(columns, [0], a=[-3 * np.sign(columns["a"][0])], b=[3.0])


@pytest.mark.parametrize("change", [swapped_labels, swapped_features, moved_uncounted, moved])
def test_the_noise_is_fresh_if_labels_or_features_change(labelled: Any, step: Step, change: Any) -> None:
    first, second = (step.sums(labelled(each)) for each in change(step.kind.columns(), step.kind.values))
    stay = change in (swapped_labels, swapped_features) or (change, step.one.name) == (moved_uncounted, "moments")
    assert same(first, second) == stay
    assert step.key(first) != step.key(second)


def test_everything_else_that_a_release_depends_on_gives_fresh_noise(
    labelled: Any, step: Step, monkeypatch: Any
) -> None:
    column, columns = step.kind.column, step.kind.columns()
    batch = labelled({**columns, "z": columns["y"]})
    first = step.key(step.sums(batch))
    sums = step.sums(batch)
    assert step.key(sums) == first, "the same input has the same noise"
    others: list[dict[str, Any]] = [{"name": "z"}, {"unit": UnitBound("word", 5000)}]
    meanings: list[dict[str, Any]] = [{"missing": 1.0}, {"reading": (("decimal_point", ","),)}]
    if step.kind.classes:
        meanings.append({"classes": LabelClasses(CLASSES.values, 1)})
    else:
        others += [{"domain": tuple(10 * label for label in column.domain)}, {"rounding": "randomized"}]
    others += [{"meaning": dataclasses.replace(column.meaning, **each)} for each in meanings]
    columns_of_others = [dataclasses.replace(column, **each) for each in others]
    # Units of these records are not bounded.
    found = [step.key(step.sums(batch, dataclasses.replace(each, unit=SINGLE)), each) for each in columns_of_others]
    elsewhere = dataclasses.replace(step, secret=bytes(32))
    found += [elsewhere.key(elsewhere.sums(batch)), step.key(dataclasses.replace(sums, sums=sums.sums + 1))]
    design, before = step.design, step.before
    designs = [dataclasses.replace(design, epsilon=design.epsilon / 2)]
    if hasattr(design, "histogram"):
        designs.append(dataclasses.replace(design, histogram=design.histogram / 2))
    if hasattr(design, "map"):
        designs.append(dataclasses.replace(design, map=dataclasses.replace(design.map, norm=design.map.norm + 1)))
    found += [step.key(sums, design=each) for each in designs]
    released: list[Any] = []
    if isinstance(before, PriorRelease):
        released = [dataclasses.replace(before, counts=(before.counts[0] + 1, *before.counts[1:]))]
        if isinstance(before.made, ClassCenter):
            (one, *rest), *rows = before.made.linear.sums
            linear = dataclasses.replace(before.made.linear, sums=((one + 1, *rest), *rows))
            released.append(dataclasses.replace(before, made=dataclasses.replace(before.made, linear=linear)))
    elif isinstance(before, LinearCenter):
        released = [dataclasses.replace(before, coefficients=(before.coefficients[0] + 1, *before.coefficients[1:]))]
    found += [step.key(sums, released=each) for each in released]
    with monkeypatch.context() as patched:
        patched.setattr(type(step.one), "purpose", b"another pass")
        found.append(step.key(sums))
    assert len({first, *found}) == 1 + len(found)
    renamed = dataclasses.replace(column, center="other")
    assert step.key(step.sums(batch, renamed), renamed) == first, "the name of the center comes after its sums"


def test_the_noise_is_that_of_the_key(labelled: Any, step: Step) -> None:
    """What is true of the key is true of the noise, which is a function of it and of public facts alone."""
    columns, name = step.kind.columns(), step.one.name
    sums = step.sums(labelled(columns))
    other = step.sums(labelled(changed(columns, [0], y=[step.kind.values[0 if columns["a"][0] > 0 else 2]])))
    key = step.key(sums)
    noise = step.noise(sums, key)
    assert noise == [int(each) for each in NOISE[name](sums, step.released)], "the job adds the same"
    assert len(noise) > 2
    assert not same(sums, other)
    assert step.noise(other, key) == noise
    fresh = step.noise(other, step.key(other))
    assert np.mean([one != two for one, two in zip(noise, fresh, strict=False)]) > 0.3
    if name == "class cells":
        assert not np.reshape(noise, (-1, 3)).sum(axis=1).any(), "the number of records of each cell is public"


def test_no_two_parts_have_one_key(labelled: Any, made: Any, name: str, secret: bytes, monkeypatch: Any) -> None:
    kind, found, keys = KINDS[name], made(name), [secret]
    derived, noise_key = center_passes.keyed_hash, CenterPass.noise_key

    def spy(*arguments: Any) -> bytes:
        keys.append(noise_key(*arguments))
        return keys[-1]

    def spy_use(key: bytes, purpose: bytes, message: bytes) -> bytes:
        used = derived(key, purpose, message)
        return used if purpose != b"labeldp use" else keys.append(used) or used

    monkeypatch.setattr(CenterPass, "noise_key", spy)
    monkeypatch.setattr(center_passes, "keyed_hash", spy_use)
    before = found.get("before")
    if before is not None:
        keys.append(before.noise_key(secret))
    for number, one in enumerate(kind.passes):
        design = found[f"design {number}"]
        sums = summarize(one, labelled(kind.columns()), kind.column, design, before, secret)
        before = one.release(sums, kind.column, design, before, secret)
    assert len({one.purpose for one in kind.passes}) == len(kind.passes)
    assert len(set(keys)) == len(keys) == {"linear": 2, "cells": 5, "classes": 4}[name]


def test_streams_of_one_key_differ() -> None:
    key = bytes(range(32))
    assert noisy_counts(np.zeros(2, np.int64), 0.5, key).tolist() != list(
        linear_center.noised_sums([0, 0], 1, 2, 0.5, key)
    )


# Sensitivity.


@settings(max_examples=20, deadline=None)
@given(row=st.integers(0, ROWS - 1), place=st.integers(0, 2))
def test_a_changed_label_moves_sums_by_what_noise_covers(row: int, place: int, labelled: Any, step: Step) -> None:
    columns, one = step.kind.columns(), step.one.name
    batches = (labelled(each) for each in (columns, changed(columns, [row], y=[step.kind.values[place]])))
    before, after = (step.sums(batch).sums for batch in batches)
    moved, labels = after - before, len(step.kind.column.domain)
    if one == "moments":
        norm = step.design.map.norm
        assert np.abs(moved).sum() <= linear_center.noise_scale(norm, labels, 1.0) == 2 * (labels - 1) * norm
    elif one == "cells":
        tables, residuals = [CellTables(*each) for each in (before, after)], NUMBERS.residuals
        assert np.abs(tables[1].counts.sum(axis=0) - tables[0].counts.sum(axis=0)).sum() <= HISTOGRAM_SENSITIVITY
        assert (tables[1].counts.sum(axis=1) == tables[0].counts.sum(axis=1)).all()
        for first, last in itertools.combinations(range(0, residuals.cells, 6), 2):
            low, high = (each.clipped(first, last, residuals) for each in tables)
            ends = ends_in_steps(first, last, residuals)
            assert np.abs(high - low).sum() <= ends[1] - ends[0]
    elif one == "class sums":
        rows = moved.reshape(-1, 3)
        assert (rows.sum(axis=1) == 0).all()
        # The noise has the scale norm / epsilon, for half of the L1 distance.
        assert np.abs(rows).sum() / 2 <= step.design.map.norm
    else:
        assert np.abs(moved).sum() in (0, 2)
        assert (moved.sum(axis=1) == 0).all()


# The order of records, bundles and retries.


def test_a_center_does_not_depend_on_batches_or_their_order(
    labelled: Any, recut: Any, run: Any, key: Any, made: Any, name: str
) -> None:
    kind, center = KINDS[name], made(name)["center"]
    pieces = recut(labelled(kind.columns()), 7, 8, 150, 700, 1500)[::-1]
    (again,) = run(lambda pipeline: {"center": fitted(pipeline, kind, pieces, key)["center"]})["center"]
    assert type(again) is type(center) is kind.of
    assert len(made(name)["sample"].words) == SAMPLED
    assert document(again) == document(center)


def test_sums_merge_in_any_order(labelled: Any, recut: Any, step: Step) -> None:
    batch, merge = labelled(step.kind.columns()), MergePasses()
    missing = pa.nulls(1, pa.string() if step.kind.classes else pa.float64())
    parts = [step.sums(each) for each in recut(batch, 3, 100, 1999)]
    parts.append(step.sums(labelled({"a": [1.0], "b": [1.0], "word": ["w1"], "y": missing})))
    whole = step.sums(batch)
    for order in itertools.permutations(range(5)):
        first = merge.merge_accumulators([parts[place] for place in order[:3]])
        accumulators = [merge.create_accumulator(), first, *(parts[place] for place in order[3:4])]
        found = merge.add_input(merge.merge_accumulators(accumulators), parts[order[4]])
        assert found is not None
        assert same(found, whole)
        assert (found.records, found.unusable) == (ROWS, 1)
        np.testing.assert_array_equal(found.digest.lanes, whole.digest.lanes)
        np.testing.assert_array_equal(found.places.lanes, whole.places.lanes)
    assert merge.extract_output(merge.merge_accumulators([merge.create_accumulator()])) is None


@pytest.mark.parametrize(
    ("name", "changes", "left"),
    [
        ("cells", {"epsilon": 4.0}, LinearCenter),
        ("classes", {"epsilon": 8.0, "features": CenterFeatures(FEATURES, most=SAMPLED)}, PriorRelease),
    ],
    ids=["cells", "classes"],
)
def test_without_a_design_what_was_released_before_stays(
    labelled: Any, run: Any, key: Any, name: str, changes: dict[str, Any], left: type
) -> None:
    """At a large epsilon, cells do not pay, nor does a center of classes that was not asked for."""
    kind = dataclasses.replace(KINDS[name], **changes)
    found = run(lambda pipeline: fitted(pipeline, kind, [labelled(kind.columns())], key))
    assert found["design 1"] == [None]
    assert type(found["center"][0]) is left


# What elements, logs and errors show.


def test_sums_have_one_size_and_come_back(labelled: Any, step: Step) -> None:
    """Runners show the sizes of elements: they must not tell what the labels are."""
    columns = step.kind.columns()
    logs = [columns, *({**columns, "y": [label] * ROWS} for label in step.kind.values)]
    found = [step.sums(labelled(each)) for each in logs]
    if found[0].sums.dtype == object:
        extremes = (0, 1, -1, 1 << 40, -(1 << 97), (1 << 97) - 1)
        found += [dataclasses.replace(found[0], sums=np.full(len(found[0].sums), each, object)) for each in extremes]
    stored = [pickle.dumps(each) for each in found]
    assert len({len(each) for each in stored}) == 1
    for one, each in zip(found, stored, strict=True):
        assert same(pickle.loads(each), one)


def test_representations_show_no_sum(labelled: Any, step: Step) -> None:
    sums = step.sums(labelled(step.kind.columns()))
    shown = f"{sums!r} {sums} {[sums]}"
    assert "array" not in shown
    large = [each for each in np.ravel(sums.sums).tolist() if abs(each) > ROWS]
    for each in (*large, *sums.digest.lanes.tolist(), *sums.places.lanes.tolist()):
        assert str(each) not in shown


def test_elements_hold_no_secret(step: Step) -> None:
    for each in (step.design, step.before, step.released):
        assert step.secret not in pickle.dumps(each)
        assert step.secret.hex() not in repr(each)


def fail_with_labels(*args: Any, **kwargs: Any) -> Any:
    """Raises an error with a label in its message and in its cause."""
    try:
        raise KeyError(SENTINEL)
    except KeyError as error:
        raise pa.ArrowNotImplementedError(f"cannot cast [{SENTINEL}]") from error


@pytest.mark.parametrize(
    ("part", "stage"),
    [
        ("design", "designing the center"),
        ("usable_records", "counting labels"),
        ("label_sums", "counting labels"),
        ("sums_of", "counting labels"),
        ("noise_key", "adding noise"),
        ("noised", "adding noise"),
    ],
)
def test_a_failing_stage_shows_no_label(
    labelled: Any, failure: Any, key: Any, monkeypatch: Any, caplog: Any, capfd: Any, step: Step, part: str, stage: str
) -> None:
    caplog.set_level(logging.DEBUG)
    owner: Any = {"usable_records": release_passes, "label_sums": center_passes}.get(part, type(step.one))
    monkeypatch.setattr(owner, part, fail_with_labels)

    def build(pipeline: Any) -> Any:
        if part != "design":
            return step.stage(pipeline, [labelled(step.kind.columns())], key)
        before = None if step.before is None else pipeline | "before" >> beam.Create([step.before])
        return {"design": pipeline | beam.Create([step.sample]) | DesignPass(step.one, before)}

    text = failure(build)
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_center_attacks.py:" in text
    printed = capfd.readouterr()
    for shown in (text, caplog.text, printed.out, printed.err):
        assert "7361" not in shown


def test_a_job_that_succeeds_shows_no_sum(
    labelled: Any, run: Any, key: Any, monkeypatch: Any, caplog: Any, capfd: Any, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    kind, seen, release = KINDS[name], set(), CenterPass.release

    def spy(one: CenterPass, sums: PassSums, *others: Any) -> Any:
        seen.update(each for each in np.ravel(sums.sums).tolist() if abs(each) > 9999)
        return release(one, sums, *others)

    monkeypatch.setattr(CenterPass, "release", spy)
    (center,) = run(lambda pipeline: {"c": fitted(pipeline, kind, [labelled(kind.columns())], key)["center"]})["c"]
    assert seen
    printed = capfd.readouterr()
    assert "finished the pass of the" in caplog.text
    for shown in (caplog.text, printed.out, printed.err, repr(center), document(center)):
        assert seen.isdisjoint(int(each) for each in re.findall(r"-?\d{4,30}", shown))


def test_designs_have_not_seen_a_label(labelled: Any, run: Any, key: Any, step: Step) -> None:
    """Given what was released before, they are functions of the sample, which other labels leave as it is."""
    columns = {**step.kind.columns(), "y": step.kind.columns(2)["y"]}

    def build(pipeline: Any) -> Any:
        return {"sample": pipeline | beam.Create([labelled(columns)]) | SampleFeatures(step.kind.features, key)}

    designs = [step.one.design(sample, step.before) for sample in (step.sample, *run(build)["sample"])]
    assert designs[0] is not None
    assert pickle.dumps(designs[0]) == pickle.dumps(designs[1])


# What is refused, before any noise.


@pytest.fixture
def noised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the passes that have drawn noise."""
    found: list[str] = []
    noise_key = CenterPass.noise_key

    def spy(one: CenterPass, *others: Any) -> bytes:
        found.append(one.name)
        return noise_key(one, *others)

    monkeypatch.setattr(CenterPass, "noise_key", spy)
    return found


@pytest.mark.parametrize("role", ["name", "others"])
def test_a_label_is_no_feature(labelled: Any, failure: Any, key: Any, noised: list[str], step: Step, role: str) -> None:
    """Nor is that of another column of the release. Otherwise a function of it would be released without noise."""
    changes: dict[str, Any] = {role: "a" if role == "name" else ("a",)}
    column = dataclasses.replace(step.kind.column, **changes)
    batch = labelled(step.kind.columns())
    text = failure(lambda pipeline: step.stage(pipeline, [batch], key, column))
    assert "the label column 'a' is a feature of the center" in text
    assert not noised


def test_a_label_is_no_feature_of_predictions(labelled: Any, made: Any, name: str, failure: Any, key: Any) -> None:
    center, column = made(name)["center"], dataclasses.replace(KINDS[name].column, name="a")
    batch = labelled({**KINDS[name].columns(), "a": KINDS[name].columns()["y"]})
    if KINDS[name].classes:
        text = failure(lambda pipeline: drawn(pipeline, [batch], center, made(name)["before"], key, column))
        assert "the label column 'a' is a feature of the center" in text
    else:
        with pytest.raises(InputError, match="the label column 'a' is a feature of the center"):
            append_center(batch, center, column)


@pytest.mark.parametrize(
    ("unusable", "message"),
    [
        (0, "the input is empty"),
        (1500, "1,500 of 3,000 records"),
        (1501, "1,501 of 3,000 records have no usable label"),
    ],
)
def test_the_threshold_is_checked_before_noise(
    labelled: Any, failure: Any, run: Any, key: Any, noised: list[str], step: Step, unusable: int, message: str
) -> None:
    columns = changed(step.kind.columns(), list(range(unusable)), y=[None] * unusable)
    batches = [labelled(columns)] if unusable else []
    if unusable == 1500:
        # The largest fraction that is fine.
        assert run(lambda pipeline: step.stage(pipeline, batches, key))["released"]
        assert noised == [step.one.name]
        return
    assert message in failure(lambda pipeline: step.stage(pipeline, batches, key))
    assert not noised


def test_ids_are_unique_before_noise(labelled: Any, failure: Any, key: Any, noised: list[str], name: str) -> None:
    kind = KINDS[name]
    batch = labelled({**kind.columns(), "id": [*range(ROWS - 1), 0]})
    column = dataclasses.replace(kind.column, id_column="id")
    text = failure(lambda pipeline: {"center": fitted(pipeline, kind, [batch], key, column)["center"]})
    assert "row 0 and /logs/a row 2999 have the same id" in text
    assert not noised


# Centers and classes of records.


def test_the_rest_of_a_batch_stays_as_it_is(labelled: Any, made: Any) -> None:
    center = made("linear")["center"]
    batch = labelled({"a": [1.0, None], "b": [1.0, 2.0], "word": ["w1", "w2"], "y": [3.0, 7361.25], "z": ["p", "q"]})
    found = append_center(batch, center, NUMBERS)
    assert all(found.batch.column(each).equals(batch.batch.column(each)) for each in batch.batch.schema.names)
    centers = found.column("y_center")
    assert centers is not None
    assert set(centers.to_pylist()) <= set(NUMBERS.domain)
    assert append_center(batch, center, NUMBERS, ("y",)).batch.schema.names == ["y", "y_center"]
    with pytest.raises(InputError, match="/logs/a: there is a column 'y_center' already"):
        append_center(found, center, NUMBERS)


def drawn(
    pipeline: Any, batches: list[Any], center: Any, binding: Any, key: Any, column: LabelColumn = CLASS
) -> dict[str, Any]:
    """Outputs of the stage that draws classes; `center` is that of the release, which the batches may carry."""
    drawing = FromCenter.of(ClassModel("y_probabilities", CLASSES, center))
    centers, bindings = (pipeline | name >> beam.Create([each]) for name, each in (("c", drawing), ("b", binding)))
    given = Carried("c", centers) if batches[0].carried else centers
    found = pipeline | beam.Create(batches, reshuffle=False) | PrivatizeLabels(given, bindings, column, key)
    return {"batches": found.batches, "digest": found.digest, "mechanism": found.mechanism}


def test_draws_depend_on_the_record_alone(
    labelled: Any, recut: Any, run: Any, key: Any, made: Any, records_of: Any
) -> None:
    batch, (center, counts) = labelled(KINDS["classes"].columns()), (made("classes")[e] for e in ("center", "before"))
    whole = run(lambda pipeline: drawn(pipeline, [batch], center, counts, key))
    parts = run(lambda pipeline: drawn(pipeline, recut(batch, 9, 500)[::-1], center, counts, key))
    assert records_of(whole["batches"]) == records_of(parts["batches"])
    assert whole["digest"] == parts["digest"] == [counts.digest]
    assert whole["mechanism"] == [center_fingerprint(center)]


def test_another_input_is_not_released(labelled: Any, failure: Any, key: Any, made: Any) -> None:
    columns, found = KINDS["classes"].columns(), made("classes")
    other = labelled(changed(columns, [5], y=["low" if columns["y"][5] != "low" else "mid"]))
    text = failure(lambda pipeline: drawn(pipeline, [other], found["center"], found["before"], key))
    assert "the input changed while the job ran" in text


def test_classes_of_another_center_are_not_released(labelled: Any, failure: Any, key: Any, made: Any) -> None:
    """A runner may compute a center once for each worker, with another result on another CPU."""
    center, counts = (made("classes")[each] for each in ("center", "before"))
    coefficients = center.cells.coefficients.copy()
    coefficients[0, 0] += 1
    other = dataclasses.replace(center, cells=dataclasses.replace(center.cells, coefficients=coefficients))
    batch = labelled(KINDS["classes"].columns()).carry(
        ["c"], [FromCenter.of(ClassModel("y_probabilities", CLASSES, other))]
    )
    text = failure(lambda pipeline: drawn(pipeline, [batch], center, counts, key))
    assert "labels were drawn by another mechanism" in text
