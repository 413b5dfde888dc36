"""Description of a release: files in, one or several private labels, files out, with budget, key and ledger.

`make_release.make_release` makes one from the fields of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa

from ...mechanisms.core.budget import round_up
from ...mechanisms.release.unit_bound import PrivacyUnit
from ...transforms.io.hive_partitions import ONE_FOLDER, OutputPartitions
from ...transforms.io.input_format import SMALL_FILE_SIZE, Equals, FilePart, Format
from ...transforms.missing_labels import Threshold
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.readers.table_snapshot import TableSnapshot, TableUrl
from ..ledger.spent_budget import Caps
from .label import Budget, Label, asked_of, request_hash
from .label_folders import label_folders
from .mechanism_file import MechanismFile
from .signing_key import SigningKeyFile

RUNS = 64
"""Many small files are read in so many runs of neighbors, or up to twice as many."""


@dataclass(frozen=True)
class InputSpec:
    """Input files, their format and the filter on their records.

    Attributes:
      pattern: Glob of the input files; absolute if they are local. Of a table, its URL with the snapshot.
      parts: Files that match the pattern when the job is requested, sorted by path.
      file_size: Mean size of a file in bytes.
      format: File format.
      where: Filter by a public feature; None keeps all records.
      table: Snapshot of the table that the files are of; None for plain files.
      left_out: Columns of the files that are neither read nor released: levels of a pandas index.
    """

    pattern: str
    parts: tuple[FilePart, ...]
    file_size: float
    format: Format
    where: Equals | None
    table: TableSnapshot | None = None
    left_out: tuple[str, ...] = ()

    @property
    def source(self) -> str | TableSnapshot:
        """The files, as jobs read them: a glob, which is matched again, or a snapshot, whose files are fixed."""
        return self.pattern if self.table is None else self.table

    @property
    def request(self) -> Any:
        """The files in the name of a request: their paths, or table, snapshot and schema."""
        if self.table is None:
            return self.paths
        return {"table": [self.table.format, self.table.table_id, str(self.table.snapshot), self.table.schema_id]}

    @property
    def size(self) -> float:
        """Size of all files in bytes."""
        return self.file_size * len(self.parts)

    @property
    def files_per_read(self) -> int:
        """Number of neighboring files that one worker reads one after the other: several if files are small."""
        return 1 if self.file_size >= SMALL_FILE_SIZE else max(len(self.parts) // RUNS, 1)

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
class OutputSpec:
    """Place and format of the output.

    Attributes:
      target: Output folder; for `fit`, the mechanism file.
      format: Format of the shards: tfrecord or parquet.
      num_shards: Number of shards, of each folder if there are several.
      compression: Compression of the shards: none or gzip.
      partitions: Folders of the shards, by partition columns of the input.
      table: Table to which the shards are added; None for none.
      left_out: Columns of the input that are in no file of the output, `leave_out`.
      shuffle: Whether shards and order of the records follow from the key, not from the files and rows of the input.
    """

    target: str
    format: str
    num_shards: int
    compression: str
    partitions: OutputPartitions = ONE_FOLDER
    table: TableUrl | None = None
    left_out: tuple[str, ...] = ()
    shuffle: bool = False


@dataclass(frozen=True)
class ValidationSpec:
    """Validation of features and output by TFDV.

    The schema is a text that features must match, without the label; None to infer one.
    """

    schema: str | None


@dataclass(frozen=True)
class Release:
    """A release of files, checked as far as that is possible without reading records.

    Attributes:
      command: privatize, fit or apply.
      input: Input files.
      schema: Columns of the first one that has some, found without reading a label.
      labels: The private labels; `column.others` of each names the other ones. They have unit and id column in common.
      threshold: Tolerated fraction of records without a usable label.
      caps: Caps on what the ledger may add up to.
      output: Output.
      validation: Validation; None for no validation.
      ledger: Path of the ledger, or URL of its database, which may hold a password: never a part of the job graph.
      key: Reference to the secret key; never its bytes.
      unsure: Columns of which only the values tell whether the output can hold them.
      sign: Reference to the key that signs the release; None for a release without a signature.
    """

    command: str
    input: InputSpec
    schema: pa.Schema
    labels: tuple[Label, ...]
    threshold: Threshold
    caps: Caps
    output: OutputSpec
    validation: ValidationSpec | None
    ledger: str = field(repr=False)
    key: NoiseKeyFile
    unsure: tuple[str, ...] = ()
    sign: SigningKeyFile | None = None

    @property
    def private(self) -> tuple[str, ...]:
        """Names of the private columns."""
        return tuple(label.name for label in self.labels)

    @property
    def folders(self) -> list[str]:
        """Folder of each label below the output."""
        return label_folders(self.private)

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit that the epsilons are for."""
        return self.labels[0].column.unit

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Columns of units and ids that are released."""
        column = self.labels[0].column
        names = (*column.unit.columns, column.id_column)
        given = dict.fromkeys(name for name in names if name is not None)
        return () if self.command == "fit" else tuple(name for name in given if name not in self.output.left_out)

    @property
    def fitted(self) -> MechanismFile | None:
        """Mechanism file of `apply`, which takes one label."""
        return self.labels[0].mechanism.fitted

    @property
    def budget(self) -> Budget:
        """Budget of all labels of a record; without `prior_epsilon` where there are several."""
        return whole_budget([label.budget for label in self.labels])

    @property
    def name(self) -> str:
        """Name of the request in the ledger, made without looking at a record; 32 hexadecimal digits.

        Names are equal for requests that release the same labels over unchanged input. `leave_out` has no part in it,
        nor in the noise: over the same labels the same outputs are drawn, whatever public columns stand beside them, so
        a second release with others says nothing new of a label. A column that a center is made of is bound by that.
        """
        names = [_label_request(self, label) for label in self.labels]
        return names[0] if len(names) == 1 else request_hash(names)


def whole_budget(budgets: Sequence[Budget]) -> Budget:
    """Adds up the budgets of all labels of a record, rounded up."""
    if len(budgets) == 1:
        return budgets[0]
    epsilon, delta = (
        round_up(sum(map(Fraction, parts), Fraction(0)))
        for parts in zip(*((budget.epsilon, budget.delta) for budget in budgets), strict=True)
    )
    return Budget(epsilon, delta)


def _label_request(release: Release, label: Label) -> str:
    where = release.input.where
    read = [release.command, release.input.request, where and [where.column, where.value]]
    return request_hash([*read, *asked_of(label)])
