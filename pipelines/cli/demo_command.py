"""`labeldp demo`: runs the main job on a generated conversion log, and trains a small model on the result.

The log has ad clicks, some of which lead to a sale. Its statistics are modeled on those published of the Criteo
Sponsored Search Conversion Log (Tallis and Yadav 2018, as used in Ghazi et al. 2022, Section 4.1): 10.8 % of clicks
convert; the conversion value is skewed, with a median of about 60 and a 95th percentile of 400, where it is clipped; a
product has 390 clicks in a week on average; and most columns are hashed categories. Features are known at the time of
the click; the value depends on them and on noise.

The model is ridge regression on indicators of the categories, trained on the released and on the true labels. Its
penalty is selected on held-out labels of the kind that it is trained on, so the features party could do the same. With
a center, it learns what the center misses. Needs the extra `evaluation`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from scipy.special import ndtri

from ...mechanisms.center.center_model import CenterModel
from ...mechanisms.core.budget import check_epsilon
from ...transforms.io.filesystems import match, read_text
from ...transforms.io.input_format import FilePart, Format
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER, Progress
from ...transforms.readers.file_reader import FileReader
from ...transforms.tfrecord.example_encoder import encode_examples
from ...transforms.tfrecord.framing import frame
from ..errors import UsageError
from ..flags.arguments import log_to_stderr
from ..publish.release_steps import ReleasedLabel
from ..publish.released import Released
from ..spec.label_folders import CENTER_NAME
from ..spec.machine import check_can_create, check_extra, check_tfrecord, one_thread_for_fits
from .commands import parse
from .exit_codes import SUCCESS, run_command
from .privatize_command import released_by

_FILES = 8
"""Number of files of the generated log."""
_MOST_TO_TRAIN_ON = 10_000_000
"""Largest number of clicks whose conversions are kept in memory, to train a model on."""

LABEL = "SalesAmountInEuro"
LABEL_MAX = 400
CONVERTED = "Sale"

_CONVERSION_RATE = 1_732_721 / 15_995_634
_MEDIAN_VALUE = 60.0
# The 95th percentile of the values before clipping is LABEL_MAX.
_SPREAD = np.log(LABEL_MAX / _MEDIAN_VALUE) / ndtri(0.95)
_MEAN_CLICKS_1WEEK = 390.0
_CLICKS_SPREAD = 1.4

_FEWEST_RECORDS = 20
"""Fewest records to train on, and to test on."""
_PENALTIES = (3.0, 30.0, 300.0, 3000.0)
_TOLERANCE = 1e-3
_FEWEST_IN_CATEGORY = 20
"""Rarer values of a category have no indicator."""
_HELD_OUT = 5
"""One record in so many selects the penalty."""


def run(args: argparse.Namespace) -> int:
    """Generates the log, privatizes its conversion values and prints what was released; returns the exit code."""
    log_to_stderr()
    code = run_command("labeldp demo", lambda: _check_flags(args))
    return code if code != SUCCESS else _demo(args)


def _check_flags(args: argparse.Namespace) -> None:
    if args.clicks < 1:
        raise UsageError(f"--clicks must be at least 1, not {args.clicks}")
    if args.seed < 0:
        raise UsageError(f"--seed must not be negative, not {args.seed}")
    if os.path.lexists(args.output):
        raise UsageError(f"--output {args.output} exists: name another folder, or delete it")
    try:
        check_epsilon(args.epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    check_tfrecord("demo, which writes TFRecords,", "try privatize on a CSV or Parquet file of your own")
    check_can_create("--output", args.output)


def _demo(args: argparse.Namespace) -> int:
    """Makes the log and runs the job; returns its exit code."""
    started = time.perf_counter()
    conversions = _write_log(os.path.join(args.output, "clicks"), args.clicks, args.seed)
    generated = time.perf_counter()
    key = NoiseKeyFile(os.path.join(args.output, "noise.key"))
    key.create()
    job, _ = parse(
        [
            "privatize",
            os.path.join(args.output, "clicks", "*.tfrecord"),
            f"--where={CONVERTED}=1",
            f"--label={LABEL}",
            f"--label_max={LABEL_MAX}",
            f"--epsilon={args.epsilon}",
            "--num_shards=4",
            f"--noise_key_file={key.path}",
            f"--output={os.path.join(args.output, 'released')}",
        ]
    )
    code, released = released_by(job, [])
    if code == SUCCESS:
        seconds = time.perf_counter() - generated
        LOGGER.info("%.1f s to privatize, after %.1f s to generate the log", seconds, generated - started)
        for title, line in zip(("Trained", ""), _trained(conversions, released, args), strict=False):
            print(f"{title:<10}{line}")
    return code


def _trained(conversions: pa.Table, released: Sequence[ReleasedLabel], args: argparse.Namespace) -> Sequence[str]:
    """Test errors of models trained on the released and on the true labels, and what was stated before; two lines."""
    release = os.path.join(args.output, "released")
    if args.clicks > _MOST_TO_TRAIN_ON:
        return [f"No model: that is done for at most {_MOST_TO_TRAIN_ON:,} clicks."]
    try:
        check_extra("demo, to train a model,", "evaluation", "sklearn")
    except UsageError as error:
        return [f"No model: {error}"]
    errors = _compare_models(conversions, release, new_clicks(-(-args.clicks // _FILES), args.seed))
    if errors is None:
        return ["No model: there are too few conversions."]
    stated, share = released[0].measured, 100 * (1 - errors.released / errors.mean)
    said = (
        ""
        if stated is None
        else f", where {100 * stated.share.value:.2g} % +- {100 * stated.share.error:.2g} % was said"
    )
    return [
        f"Squared error on {errors.records:,} new conversions: {errors.released:,.0f} with the released labels, "
        f"{errors.true:,.0f} with the true ones, {errors.mean:,.0f} without a model.",
        f"A ridge on all categories of the released labels explains {share:.2g} %{said} of the frequent ones.",
    ]


def _write_log(folder: str, clicks: int, seed: int) -> pa.Table:
    """Writes the log, and returns the conversions; none of a log that is too large to train on."""
    os.makedirs(folder)
    progress = Progress("generated")
    rows = -(-clicks // _FILES)
    conversions: list[pa.Table] = []
    for number, batch in enumerate(click_batches(clicks, seed, rows)):
        with open(os.path.join(folder, f"part-{number:05d}-of-{_FILES:05d}.tfrecord"), "wb") as file:
            file.write(frame(encode_examples(batch)))
        if clicks <= _MOST_TO_TRAIN_ON:
            conversions.append(pa.Table.from_batches([batch]).filter(pc.field(CONVERTED) == 1))
        progress.add(batch.num_rows)
    return pa.concat_tables(conversions) if conversions else pa.table({})


@dataclass(frozen=True)
class _Category:
    """A hashed categorical column.

    levels: number of categories. popularity: exponent of their Zipf law. effect: share of the log value's variance
    that the column explains.
    """

    name: str
    levels: int
    popularity: float
    effect: float


_CATEGORIES = (
    _Category("partner_id", 300, 1.0, 0.10),
    _Category("product_brand", 4000, 0.9, 0.14),
    _Category("product_category_1", 20, 0.7, 0.20),
    _Category("product_category_2", 150, 0.9, 0.12),
    _Category("product_category_3", 700, 1.0, 0.06),
    _Category("product_country", 15, 1.5, 0.02),
    _Category("device_type", 4, 0.8, 0.01),
    _Category("audience_id", 500, 0.8, 0.0),
)
_CLICKS_EFFECT = 0.05
_UNEXPLAINED = 1.0 - _CLICKS_EFFECT - sum(category.effect for category in _CATEGORIES)


def click_batches(clicks: int, seed: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Generates the log in batches of `batch_rows` records; the last batch may be smaller.

    A batch depends on the seed, its number and its size, not on other batches; another release of numpy may give
    another log. Its columns are the hashed categories (text), nb_clicks_1week and hour (int64), Sale (int64, 0 or 1)
    and SalesAmountInEuro (float32 in [0, 400], null unless Sale is 1).
    """
    world = _World(seed)
    for number, start in enumerate(range(0, clicks, batch_rows)):
        yield world.clicks(number + 1, min(batch_rows, clicks - start))


def new_clicks(clicks: int, seed: int) -> pa.RecordBatch:
    """Generates clicks that are not in the log of this seed, from the same distribution, as `click_batches` does."""
    return _World(seed).clicks(0, clicks)


class _World:
    """Names of the categories, their popularity, and their effects, of mean 0 and variance 1."""

    def __init__(self, seed: int):
        self.seed, generator = seed, np.random.default_rng(seed)
        self.tables = []
        for category in _CATEGORIES:
            popularity = np.arange(1, category.levels + 1) ** -category.popularity
            popularity /= popularity.sum()
            effects = generator.standard_normal(category.levels)
            effects -= effects @ popularity
            effects /= np.sqrt(effects**2 @ popularity)
            names = pa.array([generator.bytes(8).hex() for _ in range(category.levels)])
            self.tables.append((category, names, popularity, effects))

    def clicks(self, number: int, rows: int) -> pa.RecordBatch:
        """Draws clicks that depend on the number, and not on those of other numbers."""
        generator = np.random.default_rng((self.seed, 1, number))
        columns: dict[str, pa.Array] = {}
        log_value = np.sqrt(_UNEXPLAINED) * generator.standard_normal(rows)
        for category, names, popularity, effects in self.tables:
            levels = generator.choice(category.levels, rows, p=popularity)
            columns[category.name] = names.take(pa.array(levels))
            log_value += np.sqrt(category.effect) * effects[levels]
        busy = generator.standard_normal(rows)
        log_value += np.sqrt(_CLICKS_EFFECT) * busy
        clicks = np.exp(_CLICKS_SPREAD * busy) * _MEAN_CLICKS_1WEEK / np.exp(_CLICKS_SPREAD**2 / 2)
        columns["nb_clicks_1week"] = pa.array(clicks.astype(np.int64))
        columns["hour"] = pa.array(generator.integers(24, size=rows))
        converted = generator.random(rows) < _CONVERSION_RATE
        columns[CONVERTED] = pa.array(converted.astype(np.int64))
        values = np.minimum(np.round(_MEDIAN_VALUE * np.exp(_SPREAD * log_value), 2), LABEL_MAX)
        columns[LABEL] = pa.array(values.astype(np.float32), mask=~converted)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@dataclass(frozen=True)
class TestErrors:
    """Mean squared errors on records that are not in the log.

    Attributes:
      records: Number of these records.
      mean: Error of the mean of the released labels, without features.
      released: Error of the model trained on the released labels.
      true: Error of the model trained on the true labels.
    """

    records: int
    mean: float
    released: float
    true: float


def _compare_models(true: pa.Table, release: str, new: pa.RecordBatch) -> TestErrors | None:
    """Trains on the true labels and on a release, and tests both models on clicks that are not in the log.

    `true` holds the conversions of the log; `release` is a folder. None if there are too few conversions. Raises
    InputError if a file cannot be read.
    """
    center = Released.open(release).stated.center
    test = pa.Table.from_batches([new]).filter(pc.field(CONVERTED) == 1)
    names = [name for name in test.schema.names if name not in (LABEL, CONVERTED)]
    released = _read_shards(os.path.join(release, "data", "*"), [*names, LABEL, *([center] if center else [])])
    if min(len(released), len(test)) < _FEWEST_RECORDS:
        return None
    encode = _encoder(released, names)
    expected, inputs = _floats(test, LABEL), encode(test)

    def error(predictions: np.ndarray | float) -> float:
        return float(np.mean((expected - predictions) ** 2))

    labels, offset, known = _floats(released, LABEL), np.zeros(len(released)), np.zeros(len(test))
    if center:
        model = CenterModel.from_json(read_text(os.path.join(release, CENTER_NAME)))
        known = model.predict({name: test[name].to_pylist() for name in model.features or names[:1]})
        offset = _floats(released, center)
    predicted = _predictions(encode(released), labels - offset, inputs)
    of_true = _predictions(encode(true), _floats(true, LABEL), inputs)
    return TestErrors(len(test), error(float(labels.mean())), error(known + predicted), error(of_true))


def _read_shards(pattern: str, columns: Sequence[str]) -> pa.Table:
    paths = list(match(pattern))
    reader = FileReader(Format("tfrecord"), columns)
    batches = [batch.batch for path in paths for batch in reader.read(FilePart(path, paths[0]))]
    return pa.Table.from_batches(batches).select(columns)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy().astype(np.float64)


def _encoder(table: pa.Table, names: Sequence[str]) -> Callable[[pa.Table], sparse.csr_matrix]:
    """Encoder of features, fitted on one table: indicators of frequent categories, and standardized numbers."""
    numbers = [name for name in names if pa.types.is_integer(table[name].type)]
    frequent: dict[str, pa.Array] = {}
    for name in names:
        if name not in numbers:
            counted = table[name].cast(pa.string()).combine_chunks().value_counts()
            often = counted.field("counts").to_numpy() >= _FEWEST_IN_CATEGORY
            frequent[name] = counted.field("values").filter(pa.array(often))

    def amounts(table: pa.Table) -> np.ndarray:
        # Numbers of clicks are skewed.
        return np.log1p(np.stack([_floats(table, name) for name in numbers], 1))

    mean, deviation = amounts(table).mean(axis=0), amounts(table).std(axis=0)

    def encode(table: pa.Table) -> sparse.csr_matrix:
        parts: list[Any] = [(amounts(table) - mean) / deviation]
        for name, values in frequent.items():
            found = pc.index_in(table[name].cast(pa.string()), value_set=values)  # type: ignore[attr-defined]
            places = found.fill_null(len(values)).to_numpy()
            rows = np.arange(len(table) + 1)
            # Rare values have no indicator.
            parts.append(sparse.csr_matrix((np.ones(len(table)), places, rows), (len(table), len(values) + 1))[:, :-1])
        stacked: Any = sparse.hstack(parts, format="csr")
        return stacked

    return encode


@one_thread_for_fits()
def _predictions(inputs: sparse.csr_matrix, labels: np.ndarray, new: sparse.csr_matrix) -> np.ndarray:
    """Ridge regression, with the penalty of the least error on held-out labels."""
    # Imported late: scikit-learn takes a second, which bad usage should not wait for.
    from sklearn.linear_model import Ridge

    def model(penalty: float) -> Ridge:
        return Ridge(penalty, solver="lsqr", tol=_TOLERANCE)

    held_out = np.arange(len(labels)) % _HELD_OUT == 0
    trained, tested = inputs[~held_out], inputs[held_out]
    errors = [
        np.mean((labels[held_out] - model(penalty).fit(trained, labels[~held_out]).predict(tested)) ** 2)
        for penalty in _PENALTIES
    ]
    penalty = _PENALTIES[int(np.argmin(errors))]
    return model(penalty).fit(inputs, labels).predict(new)
