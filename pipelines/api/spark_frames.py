"""Driver of a plan over a Spark DataFrame, classic or of Connect: a pass is a `mapInArrow` whose sums are added here.

Records are identified by ids, so that noise does not depend on partitions. The frame is read again by each pass, and
whenever the released one is used. PySpark is imported by whoever made the frame; this package does not depend on it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.explained import Measured
from ...mechanisms.noise.input_digest import add_sums, input_digest
from ...mechanisms.release.center_passes import PassResult
from ...mechanisms.release.feature_sample import NO_SAMPLE, CenterFeatures, FeatureSample, smallest
from ...mechanisms.release.label_records import PassSums, add_passes
from ...mechanisms.release.plan import run_plan
from ...mechanisms.release.unit_bound import UnitBound, UnitCounts
from ...transforms.arrow_values import is_text
from ...transforms.center.feature_columns import chosen_features, concatenated, is_feature
from ...transforms.errors import CHANGED_INPUT, InputError
from ...transforms.io.filesystems import is_remote
from ...transforms.noise_key_file import NoiseKeyFile
from ..spec.label import request_in_memory
from ..spec.label_folders import DATA_NAME
from ..spec.measured_labels import measured
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile
from ..spec.target_checks import noise_key_file, path_of
from .feature_frames import map_columns
from .memory_release import MemoryRelease, Outcome, concluded, number_of_features
from .memory_request import Given, MemoryRequest, python_errors
from .spark_batches import (
    PART,
    PROBLEM,
    Compare,
    Compared,
    Draw,
    MapKeys,
    Part,
    Reader,
    SampleFeatures,
    Shard,
    Sum,
    Words,
    WriteShard,
    key_check,
    unsealed,
    words_of_ids,
    words_of_sample,
    words_of_units,
)

COMPARED = 1 << 16
"""Records, on average, that the released frame compares with what they were."""
_SIGN = 1 << 63
_RAISED = re.compile(r"(?:InputError|StageError): ([^\n]+)")


@dataclass(frozen=True, eq=False)
class SparkFrame:
    """DataFrame of Spark.

    Attributes:
      frame: The DataFrame, whose columns are named by their places: Spark takes dots for fields, and ignores case.
      schema: Its columns by their own names, with the types that executors see.
      given: The same as Spark has them.
    """

    frame: Any = field(repr=False)
    schema: pa.Schema
    given: Any = field(repr=False)

    def column(self, name: str) -> str:
        """The name of a column for Spark."""
        return f"c{self.schema.get_field_index(name)}"

    def mapped(self, columns: Mapping[str, str], task: Callable[..., Any], schema: Any) -> Any:
        """The lazy result of a task over the batches of some expressions, by the names that the task has for them."""
        names = [*columns]

        # By value: executors have this package, and no more of the caller's modules than they need.
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from task(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

        return self.frame.selectExpr(*columns.values()).mapInArrow(run, schema)


def read_spark(frame: Any) -> SparkFrame | None:
    """Recognizes a DataFrame of Spark, without importing it; None for anything else.

    Raises ValueError for one of a stream.
    """
    modules = (sys.modules.get(name) for name in ("pyspark.sql", "pyspark.sql.connect.dataframe"))
    if not any(isinstance(frame, module.DataFrame) for module in modules if hasattr(module, "DataFrame")):
        return None
    if frame.isStreaming:
        raise ValueError("a release passes over its records several times: give a DataFrame that is not a stream")
    types: Any = importlib.import_module("pyspark.sql.pandas.types")
    places = [f"c{place}" for place in range(len(frame.columns))]
    return SparkFrame(frame.toDF(*places), types.to_arrow_schema(frame.schema), frame.schema)


@dataclass(eq=False)
class SparkRun:
    """Passes over a Spark frame.

    Attributes:
      source: The frame.
      reader: Reader of its records.
      secret: The secret key.
      request: The checked request.
      left_out: Columns that are not released.
      units: Counts of units; None without.
      bounded: Sum of the words of units and records that were bounded, which later passes see again.
    """

    source: SparkFrame
    reader: Reader
    secret: bytes = field(repr=False)
    request: MemoryRequest
    left_out: Sequence[str] = ()
    units: UnitCounts | None = None
    bounded: int = 0

    @property
    def _own(self) -> list[str]:
        """Columns that tell label, identity, unit and given center."""
        column = self.reader.column
        names = [column.name, column.id_column, *column.unit.columns, column.center]
        return [name for name in names if name is not None and name in self.source.schema.names]

    def _columns(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self._label() if self._is_coded(name) else self.source.column(name) for name in names}

    def _is_coded(self, name: str) -> bool:
        return name == self.reader.column.name and self.reader.kind is not None

    def _label(self) -> str:
        """Expression of the places of text classes: Spark shows how many bytes of text it sends to Python."""
        column, classes = self.reader.column, self.reader.column.classes
        assert classes is not None
        listed = ", ".join(f"X'{value.encode().hex()}'" for value in classes.values)
        data = f"cast({self.source.column(column.name)} as binary)"
        place = f"coalesce(nullif(array_position(array({listed}), {data}), 0) - 1, {classes.other})"
        missing = "" if column.meaning.missing is None else f" else {int(column.meaning.missing)}"
        return f"cast(case when length({data}) > 0 then {place}{missing} end as int)"

    def parts(self, names: Sequence[str], part: Part) -> list[Any]:
        """Runs a task, and collects what it returns of each partition. Raises InputError if it fails."""
        frame = self.source.mapped(self._columns(names), part, f"{PART} binary, {PROBLEM} string")
        rows = collected(frame)
        for row in rows:
            if row[PROBLEM] is not None:
                raise InputError(row[PROBLEM])
        found = [unsealed(self.secret, bytes(row[PART])) for row in rows]
        return [result for result in found if result is not None]

    def _words(self, names: Sequence[str], rows: Callable[..., tuple[np.ndarray, ...]], columns: str = "ab") -> Any:
        """Frame of the words of records, in columns of one letter."""
        schema = ", ".join(f"{column} bigint" for column in columns)
        return self.source.mapped(self._columns(names), Words(self.reader, rows), schema)

    def check_maps(self) -> None:
        """Checks that no map that is released has a key of the label's name. Raises InputError if one has."""
        maps = map_columns(self.source.schema, self.reader.column.name, self.left_out)
        if maps:
            self.parts(maps, MapKeys(self.reader))

    def check_ids(self) -> None:
        """Checks that ids are unique. Raises InputError, which names none, if they are not."""
        name = self.reader.column.id_column
        assert name is not None
        ids = self._words([name], words_of_ids)
        if collected(ids.groupBy("a", "b").count().where("count > 1").limit(1)):
            raise ValueError(f"two records have the same id in {name!r}: ids must be unique")

    def bound_units(self) -> None:
        """Finds the records beyond the bounds of units, if there are any."""
        column = self.reader.column
        if not isinstance(column.unit, UnitBound):
            return
        most = column.unit.max_records
        units = self._words(self._own, words_of_units, "abc")
        ranked = units.selectExpr("*", "row_number() over (partition by a order by b) as r")
        # In one query: another one may read other units.
        [seen] = collected(ranked.selectExpr(
            "count_if(r = 1) as u", f"count_if(r > {most}) as o", "count(*) as n", "sum(cast(c as decimal(38))) as c",
            f"collect_list(case when r = {most + 1} then struct(a, b) end) as beyond",
        ))  # fmt: skip
        beyond = sorted((row["a"] + _SIGN, row["b"] + _SIGN) for row in seen["beyond"])
        over, limits = np.array(beyond, np.uint64).reshape(-1, 2).T.copy()
        self.reader = dataclasses.replace(self.reader, limits=(over, limits))
        self.units, self.bounded = UnitCounts(seen["u"], seen["o"]), int(seen["c"] or 0) + seen["n"] * _SIGN

    def _check_units(self, parts: Iterable[int]) -> None:
        """Checks that records have the units by which they were bounded. Raises InputError if not."""
        if (sum(parts) - self.bounded) % (1 << 64):
            raise InputError(CHANGED_INPUT)

    def sample(self, chosen: CenterFeatures | None) -> FeatureSample:
        """Samples the features of records, as the first pass of a job does."""
        if chosen is None:
            return NO_SAMPLE
        own = self._own if self.reader.column.unit.columns else [self.reader.column.id_column or ""]
        drawn = self._words(own, functools.partial(words_of_sample, chosen.most))
        [last] = collected(drawn.select("a").orderBy("a").limit(chosen.most).selectExpr("max(a) as a"))
        if last["a"] is None:
            return NO_SAMPLE
        parts = self.parts([*own, *chosen.names], SampleFeatures(self.reader, last["a"] + _SIGN, chosen.names))
        columns = concatenated([each for part in parts for each in part[1]], [n for part in parts for n in part[2]])
        words, records = np.concatenate([part[0] for part in parts]), sum(part[3] for part in parts)
        return chosen_features(smallest(words, columns, records, chosen.most), chosen)

    def sums(self, step: Any, design: Any, released: PassResult) -> PassSums:
        """Sums of a pass. Raises ValueError if too few records have a usable label."""
        row_map = step.row_map(design, released)
        made = getattr(released, "map", None) if row_map is None else row_map
        features = () if made is None else made.columns
        names = [name for name in features if name in self.source.schema.names]
        parts = self.parts([*self._own, *names], Sum(self.reader, step, design, released))
        self._check_units(part.bounded for part in parts)
        sums = add_passes(part.sums for part in parts)
        if sums is None:
            self.request.check(0, 0)
        assert sums is not None
        self.request.check(sums.records, sums.unusable, sums.left_out, sums.missing_centers)
        if self.units is not None:
            self.units = dataclasses.replace(self.units, without_unit=sums.left_out - self.units.left_out)
        return sums

    def compared(self, draw: Draw, mechanism: MechanismFile, seen: Sequence[str]) -> tuple[Draw, Measured | None]:
        """Looks at the labels again: adds what the draw compares records with, and measures the release.

        Raises InputError if the labels are not those that the noise is bound to.
        """
        bound = min((COMPARED << 64) // draw.binding.records, (1 << 64) - 1)
        made = draw.drawing.made
        names = [
            name for name in self.source.schema.names if name in {*seen, *(() if made is None else made.map.columns)}
        ]
        parts: list[Compared] = self.parts([*self._own, *names], Compare(self.reader, draw, bound, seen))
        self._check_units(part.bounded for part in parts)
        if digest_of(draw, self.secret, [part.sums for part in parts]) != draw.binding.digest:
            raise InputError(CHANGED_INPUT)
        tags = np.concatenate([part.tags for part in parts])
        draw = dataclasses.replace(draw, bound=bound, tags=tags[np.argsort(tags[:, 0])])
        labels = [each for part in parts for each in part.labels]
        if not labels:
            return draw, None
        centers = [each for part in parts for each in part.centers]
        columns = concatenated([each for part in parts for each in part.features], [len(each) for each in labels])
        return draw, measured(
            mechanism, np.concatenate(labels),
            np.concatenate(centers) if centers else None, columns,
        )  # fmt: skip

    def drawn(self, draw: Draw) -> Any:
        """The lazy released frame."""
        names, types = self.source.schema.names, importlib.import_module("pyspark.sql.pandas.types")
        kinds = [pa.int32() if self._is_coded(name) else self.source.schema.field(name).type for name in names]
        empty = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], names)
        given = self.source.given
        structure, entry = type(given), type(given[0])
        before = {each.name: each for each in given}
        made = types.from_arrow_schema(dataclasses.replace(draw, bound=-1).released(empty, self.secret)[0].schema)
        label = self.reader.column.name
        fields = [
            # Without metadata, which may hold statistics.
            entry(each.name, before[each.name].dataType, before[each.name].nullable)
            if each.name in before and each.name != label
            else entry(each.name, each.dataType, True)
            for each in made
        ]
        return self.source.mapped(self._columns(names), draw, structure(fields))


def release_spark(
    source: SparkFrame, key: NoiseKeyFile, left_out: Sequence[str], command: str, request: MemoryRequest, given: Given,
    secret: bytes,
) -> Outcome:  # fmt: skip
    """Releases the labels of a Spark frame, as `release_fitted`; those of the outcome are the lazy frame.

    Raises ValueError if an argument is wrong, and InputError if executors cannot read the frame, or it changes.
    """
    label, column = request.label, request.column
    if column.id_column is None:
        raise ValueError("rows of a Spark frame have no place: name a column of unique ids with id_column")
    kind = source.schema.field(column.name).type
    coded = kind if column.classes is not None and is_text(kind) else None
    run = SparkRun(source, Reader(column, key, key_check(secret), coded), secret, request, left_out)
    run.check_maps()
    run.check_ids()
    run.bound_units()
    sample = run.sample(None if given.features is None else label.features)
    binding = run_plan(label.passes, sample, column, secret, run.sums)
    mechanism = MechanismFile.of_release(concluded(label.mechanism, binding), binding)
    seen = [] if given.seen is None else [each.name for each in given.seen.schema if is_feature(each.type)]
    draw, found = run.compared(Draw(run.reader, mechanism.drawing, binding, left_out), mechanism, seen)
    number = number_of_features(given.features, column)
    release = MemoryRelease(command, request.source, binding, mechanism, label.budget.epsilon, run.units, number, found)
    return Outcome(release, np.zeros(0, bool), None, SparkRelease(run, draw, release, run.drawn(draw)))


@dataclass(frozen=True, eq=False)
class SparkRelease:
    """Release of a Spark frame: what draws its labels again, whenever they are used.

    Attributes:
      run: The passes.
      draw: The draw.
      release: Facts of the release.
      frame: The lazy released frame.
    """

    run: SparkRun = field(repr=False)
    draw: Draw = field(repr=False)
    release: MemoryRelease = field(repr=False)
    frame: Any = field(repr=False)

    def write(self, path: str, ledger: str) -> None:
        """Writes shards of Parquet, and the documents of a release. Its charge repeats the first, and costs nothing."""
        from ...transforms.io.filesystems import write_text
        from ..publish.job_result import JobResult
        from ..publish.output_folder import staging_folder
        from ..publish.release_steps import publish_release, released_label
        from ..publish.request import Request, RequestedLabel

        release, request, column = self.release, self.run.request, self.run.reader.column
        target, mechanism, label = path_of("output", path), release.mechanism, RequestedLabel.of(request.label)
        if is_remote(target):
            raise InputError(f"write {path}: name a folder that this process and the executors share")
        if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
            raise InputError(f"write {path}: it exists and is not an empty folder")
        written = Request(
            "privatize", request_in_memory("privatize", release.source, request.label), (label,), tuple(column.columns),
            target, path, "parquet", (), None, None, None, False, column.unit, request.caps, ledger,
            self.run.reader.key, False, tuple(self.run.left_out),
        )  # fmt: skip
        with staging_folder(target) as staging:
            data = os.path.join(staging.release, DATA_NAME)
            os.makedirs(data)
            parts = self.run.parts(self.run.source.schema.names, WriteShard(self.run.reader, self.draw, data))
            shards: list[Shard] = sorted(parts, key=lambda shard: shard.partition)
            names = [f"part-{place:05d}-of-{len(shards):05d}.parquet" for place in range(len(shards))]
            for shard, name in zip(shards, names, strict=True):
                os.rename(os.path.join(data, shard.name), os.path.join(data, name))
            # Those of attempts that were repeated.
            for name in {*os.listdir(data)} - {*names}:
                os.unlink(os.path.join(data, name))
            write_text(os.path.join(staging.release, MECHANISM_NAME), mechanism.to_text())
            result = JobResult(
                release.binding, digest_of(self.draw, self.run.secret, [shard.sums for shard in shards]),
                {name: shard.records for shard, name in zip(shards, names, strict=True)},
                frozenset([mechanism.drawing.fingerprint]), release.counts,
            )  # fmt: skip
            publish_release(written, [released_label(written, label, result, mechanism, staging)], staging)


def executors_key(key: bytes | None, path: str | None) -> NoiseKeyFile:
    """The key file that executors read. Raises ValueError for a key that is given as bytes."""
    if key is not None:
        raise ValueError(
            "noise_key would be in the plan of a Spark frame: name a file that executors read, too, with noise_key_file"
        )
    with python_errors(ValueError):
        return noise_key_file(path)


def digest_of(draw: Draw, secret: bytes, sums: Sequence[Any]) -> int:
    """Digest of the labels that a later pass has seen."""
    return input_digest(secret, add_sums(sums), draw.reader.column.request, draw.binding.budget)


def collected(frame: Any) -> list[Any]:
    """Rows of a small frame. Raises InputError, without the text of Spark, which may quote a value, if it fails."""
    try:
        return frame.collect()
    except Exception as error:
        raised, kind = _RAISED.findall(str(error)), type(error).__name__
    if raised:
        raise InputError(raised[-1].strip())
    raise InputError(f"Spark could not read the frame ({kind}): frame.count() and the log of its driver tell more")
