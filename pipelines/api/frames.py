"""Privatization of the label column of a data frame: `privatize`, with the facts of the release beside the frame."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.automatic import default_mechanism
from ...mechanisms.analysis.findings import Verdict, Warn
from ...mechanisms.registry import AUTO
from ...transforms.errors import InputError
from ..errors import did_you_mean
from ..spec.fields import DEFAULT_LOSS, NO_CENTER
from .callers import warn
from .feature_frames import (
    DATA_FRAMES,
    FeatureFrame,
    check_namesakes,
    frame_column,
    is_data_frame,
    map_columns,
    named_features,
    public_frame,
    read_frame,
    released_frame,
    without_columns,
)
from .label_privatizer import LabelPrivatizer
from .memory_release import Outcome, release_fitted
from .memory_request import Given, ledger_place, python_errors
from .record_streams import STREAMS, FeatureStream, SealedColumn, read_stream
from .spark_frames import SparkRelease, executors_key, read_spark, release_spark

if TYPE_CHECKING:
    from .feature_frames import Frame


@dataclass(frozen=True, eq=False)
class ReleasedFrame:
    """Data frame with randomized labels, and the facts of its release.

    Attributes:
      frame: The m released records, in a frame of the given kind, or a reader of record batches: randomized labels in
        the label column, float64 or classes of its type, and if a linear center was made, its column at the end.
      label: Name of the label column.
      center_column: Name of the column of centers around which labels were randomized; None without a center.
      center: Center of each record as a label of the domain, shape (m,), float64, or of classes their probabilities,
        shape (m, K); None without a center of features.
      records: Number m of released records.
      epsilon: Privacy budget of the release: of center, histogram and labels together.
      certified_epsilon: Epsilon that the release has spent, by its certificate; at most `epsilon`.
      verdict: Verdict on what the labels can be used for.
      warnings: Warnings about the release.
      privatizer: The fitted privatizer, with `randomizer_`, `certificate_`, `budget_` and all other facts.
      spark: What draws the labels of a Spark DataFrame; None for any other frame.
    """

    frame: Any = field(repr=False)
    label: str
    center_column: str | None
    center: np.ndarray | None = field(repr=False)
    records: int
    epsilon: float
    certified_epsilon: float
    verdict: Verdict = field(repr=False)
    warnings: list[Warn] = field(repr=False)
    privatizer: LabelPrivatizer = field(repr=False)
    spark: SparkRelease | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The release in four blocks: what was released, its privacy, its use, and what to do next."""
        return str(self.privatizer.summary_)

    def predict_center(self, features: Frame) -> np.ndarray:
        """Predicts the linear center of records, new ones as well. It costs nothing.

        Args:
          features: Features with the columns of the frame; the label may be missing.

        Returns:
          Labels of the domain, shape (n,), float64.

        Raises:
          ValueError: If there is no linear center, or a feature is missing or has the wrong type.
          TypeError: If the features are of an unknown kind.
        """
        return self.privatizer.predict_center(features)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the HTML report of the release, as `labeldp report`. Needs the extra `evaluation`.

        Args:
          path: File to write; an existing one is replaced.

        Raises:
          InputError: If the extra is not installed, or the file cannot be written.
        """
        self.privatizer.report(path)

    def write_mechanism(self, path: str | os.PathLike[str]) -> None:
        """Writes the mechanism file, for `labeldp audit`, `attack`, `report` and `apply`.

        Args:
          path: File to write; an existing one is replaced.

        Raises:
          OSError: If the file cannot be written.
        """
        self.privatizer.write_mechanism(path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the release of a Spark DataFrame as the command does: shards of Parquet and its documents.

        They are for `labeldp audit`, `report` and all that reads a release. The ledger gets an entry that names the
        folder and costs nothing: the release was charged when it was made.

        Args:
          path: Folder that this process and the executors share, new or empty.

        Raises:
          InputError: If the frame is another one than when the release was made, or the folder cannot be written.
          TypeError: If the frame is not of Spark.
        """
        if self.spark is None:
            raise TypeError("write is for Spark DataFrames: any other frame has a writer of its own")
        with python_errors(InputError):
            self.spark.write(os.fspath(path), ledger_place(self.privatizer.ledger))


def privatize(frame: object, *, label: str, epsilon: float, **parameters: object) -> ReleasedFrame:
    """Releases a data frame with randomized labels, as `labeldp privatize` releases a file of the same rows.

    By default, labels are randomized around a linear center: a private linear model of all columns of numbers and texts
    but label, id and unit. All columns but the label are public, and are released as they are. Records without a usable
    label (missing, NaN or infinite) or beyond the bound of their unit are left out, as in the files that the command
    writes. In pandas, the others keep a RangeIndex and index levels that have a name; a level without one may be a copy
    of the label and is not released: records then have their places in the frame as index.

    Without `source` and `id_column`, each call is a release of its own, with fresh noise and a charge to the ledger.
    With one of them, the same call over the same frame repeats the release and costs nothing: see `LabelPrivatizer`.

    Args:
      frame: Records with features and label: a pandas or polars DataFrame, or an Arrow table or record batch; or a
        DataFrame of Spark with ids, of which the result has a lazy one; or, for more records than fit into memory, a
        pyarrow Dataset, a polars LazyFrame, or a function that returns a reader of record batches, which is read
        several times. Then `frame` of the result is a RecordBatchReader, which reads them once more: it stops with
        InputError where labels are not those that were released. Labels, ids and centers are held in memory.
      label: Name of the label column.
      epsilon: Privacy budget of the release: of center, histogram and labels together.
      **parameters: Further parameters of `LabelPrivatizer`, `label_min`, `label_max` and `label_step` among them.
        `id_column` and `unit_column` name columns of the frame, and so does `center_column` unless it is the new column
        of a linear center. Those of `leave_out` are not released. As on the command line, a mechanism other than
        "auto" has a linear center only if `center` or `center_features` ask for one.

    Returns:
      The released frame with the facts of the release.

    Raises:
      ValueError: If a parameter is wrong, a column is missing or has the wrong type, or the mechanism has no randomizer
        for the histogram.
      TypeError: If the frame is of an unknown kind.
      InputError: If key or ledger cannot be used, or a cap would be exceeded.
    """
    spark = read_spark(frame)
    stream = None if spark is not None else read_stream(frame)
    if spark is None and stream is None and not is_data_frame(frame):
        raise TypeError(f"frame must be {DATA_FRAMES}, a Spark DataFrame, or {STREAMS}, not {type(frame).__name__}")
    privatizer = LabelPrivatizer(epsilon=epsilon).set_params(label=label, **parameters)
    named = [label, privatizer.id_column, privatizer.unit_column, privatizer.center_column]
    read = stream if spark is None else spark
    shown = frame if read is None else read.schema.empty_table()
    shown, left_out = public_frame(shown, label, [*named, *named_features(privatizer.center_features)])
    columns, linear = read_frame(shown, "frame"), _offers_features(privatizer)
    place = _place(columns, "label", label)
    arguments = {"ids": "id_column", "units": "unit_column"} | ({} if linear else {"center": "center_column"})
    companions = {
        argument: _place(columns, parameter, getattr(privatizer, parameter))
        for argument, parameter in arguments.items()
        if getattr(privatizer, parameter) is not None
    }
    left = named_features(privatizer.leave_out)
    for name in left:
        if columns.names[_place(columns, "leave_out", name)] in {label, privatizer.center_column}:
            raise ValueError(f"leave_out: {name!r} is released, as the label or its center")
    check_namesakes(shown, label, left)
    if stream is not None and (maps := map_columns(stream.schema, label, left)):
        for block in stream.blocks(maps):
            check_namesakes(block, label, ())
    if privatizer.features is None:
        no_features = {label, privatizer.id_column, None if linear else privatizer.center_column, *left}
        privatizer.set_params(features=len({*columns.names} - no_features))
    if left_out is not None:
        warn(left_out)
    if spark is not None:
        others: dict[str, Any] = {}
        labels: Any = None
    elif stream is None:
        labels, others = frame_column(shown, place), {key: frame_column(shown, at) for key, at in companions.items()}
    else:
        labels = stream.sealed(label)
        others = {key: stream.column(columns.names[at]) for key, at in companions.items()}
        columns = FeatureStream(stream, columns.names, len(labels), "frame")

    def output(outcome: Outcome) -> tuple[Any, Any]:
        if spark is not None:
            return outcome.labels, None
        centers, name, kept = outcome.centers, outcome.release.mechanism.drawing.column, outcome.kept
        named = None if centers is None or name is None else (name, centers)
        of_kept = centers if centers is None or kept.all() else centers[kept]
        if isinstance(labels, SealedColumn):
            return _released_reader(labels.blocks(columns.names), columns.schema, place, outcome, named, left), of_kept
        return without_columns(released_frame(shown, place, outcome.labels, kept, named), left), of_kept

    hidden = {label, *left, *(getattr(privatizer, name) for name in ("id_column", "unit_column", "center_column"))}
    seen = columns.select([name for name in columns.names if name not in hidden])
    given = Given(labels, features=columns if linear else None, seen=seen, **others)
    release = release_fitted
    if spark is not None:
        release = functools.partial(
            release_spark, spark, executors_key(privatizer.noise_key, privatizer.noise_key_file), left
        )
    released, center = privatizer._fit("privatize", given, output, release)
    return ReleasedFrame(
        released if spark is None else released.frame,
        label,
        privatizer.center_column if center is None and spark is None else privatizer.center_name_,
        center,
        privatizer.records_,
        float(epsilon),
        privatizer.certified_epsilon_,
        privatizer.verdict_,
        privatizer.warnings_,
        privatizer,
        None if spark is None else released,
    )


def _released_reader(
    blocks: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    place: int,
    outcome: Outcome,
    centers: tuple[str, np.ndarray] | None,
    left_out: Sequence[str],
) -> pa.RecordBatchReader:
    """Reads records again, with the released labels in place of the true ones."""

    def released(block: pa.RecordBatch, start: int) -> pa.RecordBatch:
        rows = slice(start, start + block.num_rows)
        around = None if centers is None else (centers[0], centers[1][rows])
        labels = outcome.labels.slice(start, block.num_rows)
        return without_columns(released_frame(block, place, labels, outcome.kept[rows], around), left_out)

    def all_released() -> Iterator[pa.RecordBatch]:
        start = 0
        for block in blocks:
            yield released(block, start)
            start += block.num_rows

    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return pa.RecordBatchReader.from_batches(released(empty, 0).schema, all_released())


def _place(columns: FeatureFrame, parameter: str, name: object) -> int:
    """Place of a column that a parameter names."""
    if not isinstance(name, str):
        raise ValueError(f'{parameter} must be text: "{name}"')
    if name not in columns.names:
        raise ValueError(f"{parameter}: frame has no column {name!r}{did_you_mean(str(name), columns.names)}")
    return columns.names.index(name)


def _offers_features(privatizer: LabelPrivatizer) -> bool:
    """Tells whether a linear center is made of the features, if its label domain allows one, as on the command line."""
    if privatizer.center is not None or privatizer.center_features is not None:
        return privatizer.center != NO_CENTER
    named = None if privatizer.mechanism == AUTO else privatizer.mechanism
    mechanism = named or default_mechanism(privatizer.for_, privatizer.loss or DEFAULT_LOSS)
    return mechanism == AUTO and privatizer.center_column is None
