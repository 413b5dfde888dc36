"""The project's transforms as Beam YAML takes them: every argument is a number, a text or a list of them.

`yaml/providers.yaml` gives them their names. Whoever writes Python uses `labeldp.transforms` itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ..mechanisms.core.label_grid import label_grid
from ..mechanisms.core.label_rounding import NEAREST
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.registry import default_rounding
from ..pipelines.release.job_result import JobResult
from ..pipelines.release.manifest import manifest
from ..pipelines.release.mechanism_file import mechanism_file
from ..transforms import (
    BatchesToRows,
    Equals,
    Format,
    LabelColumn,
    LabelledBatch,
    NoiseKeyFile,
    NoisyPrior,
    PriorRelease,
    PrivatizeLabels,
    ReadRecordBatches,
    RowsToBatches,
    ShardFile,
    SolveRandomizer,
    WriteParquet,
    WriteTFRecords,
    row_fields,
)
from ..transforms.io.filesystems import delete_folder
from ..transforms.io.publish_shards import require_digest, require_empty


class Release(NamedTuple):
    """One release, as text. manifest: what release.json says. mechanism: the mechanism file, for `labeldp audit`."""

    manifest: str
    mechanism: str


beam.coders.registry.register_coder(Release, beam.coders.RowCoder)


def label_column(
    label: str,
    label_min: float | None = None,
    label_max: float | None = None,
    label_step: float | None = None,
    label_values: Sequence[float] | None = None,
    id_column: str | None = None,
    rounding: str = NEAREST,
) -> LabelColumn:
    """The private column. Its public domain is label_min, label_max and label_step, or label_values (ascending).

    Raises ValueError when neither or both are given, or the domain is none.
    """
    grid = (label_min, label_max, label_step)
    if (label_values is None) == any(bound is None for bound in grid):
        raise ValueError("the public label domain: give label_min, label_max and label_step, or label_values")
    domain = np.array(label_values, np.float64) if label_values is not None else label_grid(*map(str, grid))
    return LabelColumn(label, tuple(domain.tolist()), id_column, rounding)


def read_record_batches(
    input: str, format: str, label: str | None = None, columns: list[str] | None = None, where: str | None = None
) -> beam.PTransform:
    """Reads files into record batches.

    Args:
      input: A path or glob.
      format: One of tfrecord, parquet and csv.
      label: The private column; of a CSV file it is read as a number. Required with where.
      columns: The columns to read; all when left out. Fitting needs the label and the id column only.
      where: NAME=VALUE keeps the records whose public feature NAME has that value. NAME must not be the label.
    """
    name, equals, value = (where or "").partition("=")
    if where is not None and not (name and equals):
        raise ValueError(f"where takes NAME=VALUE, not {where!r}")
    return ReadRecordBatches(input, Format(format), columns, Equals(name, value) if where else None, label)


def noisy_prior(
    label: str,
    epsilon: float,
    noise_key_file: str,
    label_min: float | None = None,
    label_max: float | None = None,
    label_step: float | None = None,
    label_values: list[float] | None = None,
    id_column: str | None = None,
    prior_epsilon: float | None = None,
    rounding: str = NEAREST,
) -> beam.PTransform:
    """Releases the histogram of the labels under label differential privacy.

    Args:
      label: The private column.
      epsilon: The whole budget, histogram and labels together.
      noise_key_file: 32 secret bytes; every worker reads them from there.
      label_min: Least label of the public domain.
      label_max: Largest label of the public domain.
      label_step: Distance of the domain's labels.
      label_values: The domain one by one, instead of the three.
      id_column: Unique ids to name records by; by default their file and row.
      prior_epsilon: What the histogram may spend; by default sqrt(k / n), at most epsilon / 2.
      rounding: Of labels off the domain's points, nearest or randomized.
    """
    column = label_column(label, label_min, label_max, label_step, label_values, id_column, rounding)
    return NoisyPrior(column, epsilon, NoiseKeyFile(noise_key_file), prior_epsilon)


def solve_randomizer(mechanism: str = "rr_on_bins", parameters: dict[str, Any] | None = None) -> beam.PTransform:
    """Solves for the best randomizer of a released prior.

    Args:
      mechanism: Its name, as `labeldp privatize --mechanism` takes it.
      parameters: The mechanism's own, and its loss.
    """
    return SolveRandomizer(mechanism, parameters or {})


class PrivatizeRecordBatches(beam.PTransform):
    """Replaces every label by a draw from the randomizer.

    Takes three inputs: batches, prior and randomizer. Gives batches, and dead_letters as JSON texts. Nothing comes out
    unless the batches are those that the prior was counted from.
    """

    def __init__(
        self,
        label: str,
        noise_key_file: str,
        label_min: float | None = None,
        label_max: float | None = None,
        label_step: float | None = None,
        label_values: list[float] | None = None,
        id_column: str | None = None,
        rounding: str = NEAREST,
    ):
        """Args are those of the prior, and must be the same.

        Args:
          label: The private column.
          noise_key_file: 32 secret bytes.
          label_min: Least label of the public domain.
          label_max: Largest label of the public domain.
          label_step: Distance of the domain's labels.
          label_values: The domain one by one, instead of the three.
          id_column: Unique ids to name records by; by default their file and row.
          rounding: Of labels off the domain's points, nearest or randomized.
        """
        super().__init__()
        self._column = label_column(label, label_min, label_max, label_step, label_values, id_column, rounding)
        self._key = NoiseKeyFile(noise_key_file)

    def expand(self, pcolls: dict[str, PCollection[Any]]) -> dict[str, PCollection[Any]]:
        missing = {"batches", "prior", "randomizer"} - set(pcolls)
        if missing:
            raise ValueError(f"PrivatizeLabels needs the inputs batches, prior and randomizer; {missing} not given")
        found = _privatize(pcolls["batches"], pcolls["randomizer"], pcolls["prior"], self._column, self._key)
        return {name: found[name] for name in ("batches", "dead_letters")}


def _privatize(
    batches: PCollection[LabelledBatch],
    randomizer: PCollection[Randomizer],
    prior: PCollection[Any],
    column: LabelColumn,
    key: NoiseKeyFile,
) -> dict[str, PCollection[Any]]:
    """Batches and dead letters, which come once both passes are known to have seen the same; and the digest, too."""
    privatized: Any = batches | "Privatize" >> PrivatizeLabels(randomizer, prior, column, key)
    digest = AsSingleton(privatized.digest)
    letters = privatized.dead_letters | "AsText" >> beam.Map(_as_text).with_output_types(str)
    return {
        "batches": privatized.batches
        | "ReleaseIfUnchanged" >> beam.Map(_unchanged, digest).with_output_types(LabelledBatch),
        "dead_letters": letters | "NameIfUnchanged" >> beam.Map(_unchanged, digest).with_output_types(str),
        "digest": privatized.digest,
    }


def _unchanged(element: Any, digest: int) -> Any:
    # It is there only when every label has been seen and the passes agree, so nothing passes before.
    require_digest(digest)
    return element


def _as_text(letter: Any) -> str:
    return letter.to_json()


class WriteRecordBatches(beam.PTransform):
    """Writes batches into shards, the same bytes on every runner.

    Gives a ShardFile for each. Until they are finished, OUTPUT.segments beside the folder holds parts of them: a job
    that fails leaves it behind, to be deleted.
    """

    def __init__(self, output: str, format: str = "tfrecord", num_shards: int = 1, compression: str = "none"):
        """Raises ValueError for an unknown format or compression, or fewer than one shard.

        Args:
          output: A new or empty folder.
          format: tfrecord or parquet.
          num_shards: How many files.
          compression: none or gzip.
        """
        super().__init__()
        writers = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}
        if format not in writers:
            raise ValueError(f"format must be one of {', '.join(writers)}, not {format!r}")
        self._output = output
        self._segments = f"{output.rstrip('/')}.segments"
        self._writer = writers[format](self._output, self._segments, num_shards, compression)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ShardFile]:
        """Raises InputError when there are files in the output folder, or in that of segments."""
        # Where the job is started, not on workers: one that a runner starts again finds shards of its own there.
        require_empty(self._output)
        require_empty(self._segments)
        shards: Any = batches | "Write" >> self._writer
        _ = (
            batches.pipeline
            | "Segments" >> beam.Create([self._segments])
            | "DeleteSegments" >> beam.Map(_delete_segments, AsList(shards))
        )
        return shards


def _delete_segments(folder: str, _: Sequence[ShardFile]) -> None:
    # The side input is complete only when every shard has its name, so no segment is needed any more.
    delete_folder(folder)


class LabelDP(beam.PTransform):
    """Rows in, the same rows out, with the label replaced under label differential privacy: the whole job as one step.

    Gives `rows`, and `release`: one row with the manifest and the mechanism file as text. Rows without a usable label
    are left out. Nothing comes out if the rows differ between the two passes over them.
    """

    def __init__(
        self,
        label: str,
        id_column: str,
        epsilon: float,
        noise_key_file: str,
        label_min: float | None = None,
        label_max: float | None = None,
        label_step: float | None = None,
        label_values: list[float] | None = None,
        prior_epsilon: float | None = None,
        mechanism: str = "rr_on_bins",
        parameters: dict[str, Any] | None = None,
        rounding: str | None = None,
    ):
        """Raises ValueError for a bad domain, budget or mechanism.

        Args:
          label: The private field.
          id_column: A field that is unique among the rows: it names them.
          epsilon: The whole budget, histogram and labels together.
          noise_key_file: 32 secret bytes; every worker reads them from there.
          label_min: Least label of the public domain.
          label_max: Largest label of the public domain.
          label_step: Distance of the domain's labels.
          label_values: The domain one by one, instead of the three.
          prior_epsilon: What the histogram may spend; by default sqrt(k / n), at most epsilon / 2.
          mechanism: Its name, as `labeldp privatize --mechanism` takes it.
          parameters: The mechanism's own, and its loss.
          rounding: Of labels off the domain's points, nearest or randomized; by default what suits the mechanism.
        """
        super().__init__()
        rounding = rounding or default_rounding(mechanism)
        self._column = label_column(label, label_min, label_max, label_step, label_values, id_column, rounding)
        self._epsilon = epsilon
        self._key = NoiseKeyFile(noise_key_file)
        self._prior = NoisyPrior(self._column, epsilon, self._key, prior_epsilon)
        self._solve = SolveRandomizer(mechanism, parameters or {})

    def expand(self, rows: PCollection[Any]) -> dict[str, PCollection[Any]]:
        """Raises InputError when the rows have no schema, or lack the label or the id."""
        id_column = self._column.id_column
        assert id_column is not None
        fields = row_fields(rows, self._column.name, id_column)
        batches: Any = rows | "Batch" >> RowsToBatches(id_column) | "Keep" >> beam.Reshuffle()
        prior: Any = batches | "NoisyPrior" >> self._prior
        randomizer: Any = prior | "SolveRandomizer" >> self._solve
        privatized = _privatize(batches, randomizer, prior, self._column, self._key)
        return {
            "rows": privatized["batches"] | "Rows" >> BatchesToRows(fields, self._column.name),
            "release": randomizer
            | "Release"
            >> beam.ParDo(
                _Release(self._column, self._epsilon), AsSingleton(prior), AsSingleton(privatized["digest"])
            ).with_output_types(Release),
        }


class _Release(beam.DoFn):
    def __init__(self, column: LabelColumn, epsilon: float):
        self._column = column
        self._epsilon = epsilon

    def process(self, randomizer: Randomizer, prior: PriorRelease, digest: int) -> Iterator[Release]:
        require_digest(digest)
        mechanism = mechanism_file(randomizer, prior)
        details = {"label": self._column.name, "identity": self._column.id_column, "where": None}
        document = manifest(JobResult(prior, digest, {}), mechanism, self._epsilon, details)
        yield Release(json.dumps(document), mechanism.to_text())
