"""Checked requests of the main job, in parts: each step of the job takes the parts that it needs.

`parse_request` makes the parts from the flags.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ...mechanisms.center.linear_center import PLACES
from ...mechanisms.core.budget import decimal_budget, round_up
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_sample import CenterFeatures
from ...transforms.io.hive_partitions import ONE_FOLDER, OutputPartitions
from ...transforms.io.input_format import SMALL_FILE_SIZE, Equals, FilePart, Format
from ...transforms.noise_binding import Threshold
from ...transforms.noise_key_file import NoiseKeyFile
from ..ledger.spent_budget import Caps
from .mechanism_file import MechanismFile

# Many small files are read in so many runs of neighbors, or up to twice as many.
_RUNS = 64


@dataclass(frozen=True)
class InputSpec:
    """Input files, their format and the filter on their records.

    Attributes:
      pattern: Glob of the input files; absolute if they are local.
      parts: Files that match the pattern when the job is requested, sorted by path.
      file_size: Mean size of a file in bytes.
      format: File format.
      where: Filter by a public feature; None keeps all records.
    """

    pattern: str
    parts: tuple[FilePart, ...]
    file_size: float
    format: Format
    where: Equals | None

    @property
    def size(self) -> float:
        """Size of all files in bytes."""
        return self.file_size * len(self.parts)

    @property
    def together(self) -> int:
        """Number of neighboring files that one worker reads one after the other: several if files are small."""
        return 1 if self.file_size >= SMALL_FILE_SIZE else max(len(self.parts) // _RUNS, 1)

    @property
    def id_groups(self) -> int:
        """Number of groups in which ids are sorted: a MiB of input has no more of them than fit into memory."""
        return self.groups(1 << 20)

    def groups(self, size: int) -> int:
        """Number of groups for a shuffle, one per `size` bytes of input, from 16 to 4,096; each takes time."""
        return min(max(int(self.size) // size, 16), 4096)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files."""
        return tuple(part.path for part in self.parts)


@dataclass(frozen=True)
class BudgetRequest:
    """Privacy budget of the release, and caps on the sums in the ledger.

    Attributes:
      epsilon: Budget of histogram and labels together; for `apply`, that of the fitted randomizer alone. With privacy
        units, it is that of a unit, and so are the others.
      delta: Delta of the labels; 0 for pure DP.
      prior_epsilon: Share of the label histogram; None for the default split.
      caps: Caps on what the ledger may add up to.
    """

    epsilon: float
    delta: float
    prior_epsilon: float | None
    caps: Caps


@dataclass(frozen=True)
class MechanismRequest:
    """Mechanism to solve for, or the fitted one of `apply`.

    Attributes:
      name: A name of `MECHANISMS`.
      loss: Name of the loss to minimize and to report.
      parameters: Parameters of the mechanism, the loss among them; none of auto.
      fitted: Mechanism file of `apply`; None for the other commands.
    """

    name: str
    loss: str
    parameters: Mapping[str, Any]
    fitted: MechanismFile | None = None


@dataclass(frozen=True)
class OutputSpec:
    """Place and format of the output.

    Attributes:
      target: Output folder; for `fit`, the mechanism file.
      format: Format of the shards: tfrecord or parquet.
      num_shards: Number of shards, of each folder if there are several.
      compression: Compression of the shards: none or gzip.
      partitions: Folders of the shards, by partition columns of the input.
    """

    target: str
    format: str
    num_shards: int
    compression: str
    partitions: OutputPartitions = ONE_FOLDER


@dataclass(frozen=True)
class ValidationRequest:
    """Validation of features and output by TFDV.

    The schema is a text that features must match, without the label; None to infer one.
    """

    schema: str | None


@dataclass(frozen=True)
class JobRequest:
    """A job for one private column, checked as far as that is possible without reading records.

    A job for several has one request for each. They have input, output, unit, validation, ledger and key in common, and
    `column.others` names the other columns.

    Attributes:
      command: privatize, fit or apply.
      input: Input files.
      column: Label column and its public domain.
      threshold: Tolerated fraction of records without a usable label.
      budget: Privacy budget.
      mechanism: Mechanism.
      output: Output.
      validation: Validation; None for no validation.
      ledger: Path of the ledger, or URL of its database, which may hold a password: never a part of the job graph.
      key: Reference to the secret key; never its bytes.
      features: Features of the linear center that the job makes; None for any other center, or none.
      unused: Columns that are no features of that center because of their types, with the reasons.
      unsure: Columns of which only the values tell whether the output can hold them.
    """

    command: str
    input: InputSpec
    column: LabelColumn
    threshold: Threshold
    budget: BudgetRequest
    mechanism: MechanismRequest
    output: OutputSpec
    validation: ValidationRequest | None
    ledger: str = field(repr=False)
    key: NoiseKeyFile
    features: CenterFeatures | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()

    @property
    def record_budget(self) -> BudgetRequest:
        """The budget that the stages take: that of one record, which is not above the decimals that were asked for."""
        unit, budget = self.column.unit, self.budget
        if unit is None:
            return dataclasses.replace(budget, epsilon=decimal_budget(budget.epsilon))
        prior = None if budget.prior_epsilon is None else unit.record_share(budget.prior_epsilon)
        return BudgetRequest(unit.record_share(budget.epsilon), unit.record_share(budget.delta), prior, budget.caps)


def whole_budget(requests: Sequence[JobRequest]) -> BudgetRequest:
    """Adds up the budgets of all labels of a record, with the caps of the first request.

    The sum has no `prior_epsilon` where there are several requests.
    """
    budgets = [request.budget for request in requests]
    if len(budgets) == 1:
        return budgets[0]
    epsilon, delta = (
        round_up(sum(map(Fraction, parts), Fraction(0)))
        for parts in zip(*((budget.epsilon, budget.delta) for budget in budgets), strict=True)
    )
    return BudgetRequest(epsilon, delta, None, budgets[0].caps)


def request_id(requests: Sequence[JobRequest]) -> str:
    """Names a request in the ledger, without looking at a record; 32 hexadecimal digits.

    Names are equal for requests that give the same release over unchanged input.
    """
    own = [_label_request_id(request) for request in requests]
    return own[0] if len(own) == 1 else hashlib.blake2b(json.dumps(own).encode(), digest_size=16).hexdigest()


def _label_request_id(request: JobRequest) -> str:
    column, where = request.column, request.input.where
    asked: list[Any] = [
        request.command, request.input.paths, column.name, column.domain, column.id_column, column.rounding,
        request.budget.epsilon, request.budget.prior_epsilon, request.mechanism.name, request.mechanism.parameters,
        where and [where.column, where.value],
    ]  # fmt: skip
    if column.center is not None:
        asked.append(column.center)
    if request.features is not None:
        # The empty list names declared categories, which earlier versions had.
        asked.append([request.features.names, [], PLACES])
    if column.groups is not None:
        asked.append({"groups": column.groups.request})
    if column.unit is not None:
        # Ids of earlier requests stay: "drop" was one of two treatments of further records.
        asked.append({"unit": [*column.unit.request, "drop", column.unit.delta]})
    if column.others:
        asked.append({"with": column.others})
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()
