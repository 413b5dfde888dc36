"""Request of a run, as its staging folder keeps it: what the steps after the job need to know of a release.

All of it is public. The secret key is named, and the ledger without a password. The digest of the file goes into the
job graph and from there into the job results, so that results of another run, or a request that was changed after the
job was built, are found.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apache_beam.io.filesystems import FileSystems

from ...mechanisms.release.unit_bound import SINGLE, PrivacyUnit, UnitBound
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, read_text, write_text
from ...transforms.io.input_format import Equals
from ...transforms.noise_key_file import NoiseKeyFile
from ..ledger.ledger import is_database
from ..ledger.spent_budget import Caps, Window
from ..spec.label import Budget, Label
from ..spec.label_folders import label_folders
from ..spec.release import Release, whole_budget
from .output_folder import Staging

REQUEST_NAME = "request.json"
FORMAT = "labeldp-request-1"
_SECRETS = ("password", "sslpassword")


@dataclass(frozen=True)
class RequestedLabel:
    """One label of a request.

    Attributes:
      name: Name of the column.
      budget: Privacy budget of the label.
      id_column: Column of record ids; None for records that are identified by file and row.
      loss: Name of the loss to report.
    """

    name: str
    budget: Budget
    id_column: str | None
    loss: str

    @classmethod
    def of(cls, label: Label) -> RequestedLabel:
        """Takes the facts of a label."""
        return cls(label.name, label.budget, label.column.id_column, label.mechanism.loss)


@dataclass(frozen=True)
class Request:
    """A checked release, as the steps after its job need it.

    Attributes:
      command: privatize, fit or apply.
      name: Name of the request in the ledger.
      labels: The private labels.
      columns: Columns of the output that are no features: labels, id, unit and centers.
      target: Output folder, or mechanism file of `fit`, as an absolute path or URL.
      output: The same as the user gave it, for the ledger and for what is printed.
      output_format: Format of the shards.
      partitions: Name of each column of the folders of shards, and whether it is of int32.
      table: What the manifest states of the table of the input; None for files.
      where: Filter on the records, NAME=VALUE; None for all records.
      validation: "inferred schema" or "given schema"; None for no validation.
      fitted: Whether the mechanism was given, as for `apply`.
      unit: Privacy unit that the epsilons are for.
      caps: Caps on what the ledger may add up to.
      ledger: Path or URL of the ledger.
      key: Reference to the secret key.
      left_out: Columns of the input that are in no file of the output.
      signed: Whether the release is to be signed. The signing key is not named: who publishes the release names it.
    """

    command: str
    name: str
    labels: tuple[RequestedLabel, ...]
    columns: tuple[str, ...]
    target: str
    output: str
    output_format: str
    partitions: tuple[tuple[str, bool], ...]
    table: dict[str, Any] | None
    where: str | None
    validation: str | None
    fitted: bool
    unit: PrivacyUnit
    caps: Caps
    # It may hold a password.
    ledger: str = field(repr=False)
    key: NoiseKeyFile
    signed: bool
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, release: Release) -> Request:
        """Takes the facts of a checked release."""
        where, validation, output = release.input.where, release.validation, release.output
        table = release.input.table
        columns = [name for each in release.labels for name in each.column.columns]
        schema = None if validation is None else "inferred schema" if validation.schema is None else "given schema"
        return cls(
            release.command, release.name, tuple(map(RequestedLabel.of, release.labels)),
            tuple(dict.fromkeys(columns)), absolute(output.target), output.target, output.format,
            output.partitions.columns, None if table is None else table.statement,
            _filter(where, output.left_out), schema,
            release.fitted is not None,
            release.unit, release.caps, release.ledger, release.key, release.sign is not None,
            output.left_out,
        )  # fmt: skip

    @property
    def no_features(self) -> set[str]:
        """Columns of the output that recipients do not predict from: labels, ids, units and centers."""
        return {*self.columns, *self.unit.columns}

    @property
    def folders(self) -> list[str]:
        """Folder of each label below the output."""
        return label_folders(tuple(label.name for label in self.labels))

    @property
    def budget(self) -> Budget:
        """Budget of all labels of a record."""
        return whole_budget([label.budget for label in self.labels])

    def to_text(self, run: str) -> str:
        """Writes the request of the run of a name as JSON, without the password of a database."""
        document = {"format": FORMAT, "run": run, **asdict(self), "ledger": _without_password(self.ledger)}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Request:
        """Reads a request. Raises ValueError if it is none, or of another version."""
        document = json.loads(text)
        if document.pop("format") != FORMAT:
            raise ValueError("the file is of another version")
        del document["run"]
        labels = [(Budget(**label.pop("budget")), label) for label in document.pop("labels")]
        unit, caps = document.pop("unit"), document.pop("caps")
        window = caps.pop("window")
        return cls(
            labels=tuple(RequestedLabel(budget=budget, **label) for budget, label in labels),
            columns=tuple(document.pop("columns")),
            partitions=tuple((str(name), bool(integer)) for name, integer in document.pop("partitions")),
            unit=SINGLE if unit["column"] is None else UnitBound(**unit),
            caps=Caps(**caps, window=None if window is None else Window.parse(window["text"])),
            key=NoiseKeyFile(**document.pop("key")),
            left_out=tuple(document.pop("left_out")),
            **document,
        )


def _filter(where: Equals | None, left_out: Sequence[str]) -> str | None:
    """The filter as the manifest states it: without its value, that of all records, if its column is left out."""
    if where is None:
        return None
    return f"{where.column}=..." if where.column in left_out else f"{where.column}={where.value}"


def _without_password(ledger: str) -> str:
    if not is_database(ledger):
        return ledger
    from ..ledger.ledger_database import parse_database_url

    # URL.set would keep it.
    url = parse_database_url(ledger)._replace(password=None)
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=False)


@dataclass(frozen=True)
class Run:
    """A request with the text of its file."""

    request: Request
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        """Digest of the file, which names the run; hexadecimal digits."""
        return hashlib.blake2b(self.text.encode(), digest_size=32).hexdigest()

    def write(self, staging: Staging) -> None:
        """Writes the file into a staging folder."""
        write_text(FileSystems.join(staging.work, REQUEST_NAME), self.text)


def new_run(request: Request) -> Run:
    """Names a new run of a request."""
    return Run(request, request.to_text(uuid.uuid4().hex))


def read_run(folder: str) -> Run:
    """Reads the run of a folder of temporary files. Raises InputError if it has none."""
    path = FileSystems.join(folder, REQUEST_NAME)
    text = read_text(path)
    try:
        return Run(Request.from_text(text), text)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not the request of a run: {type(error).__name__}") from None
