"""Privacy ledger: what was released from a dataset, the budget that was spent, and caps on it.

The ledger has one entry per run, in a file of JSON lines or, for a team, in a database or on an object store.
Epsilons and deltas of distinct releases add up (basic composition).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.unit_bound import UnitBound, spent
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, is_remote
from ...transforms.stores.object_store import is_store
from .ledger_file import LedgerFile
from .ledger_object import LedgerObject
from .mechanism_file import MechanismFile, center_release_name, prior_release_name

# Far above every budget; sums of numbers up to it are finite as floats.
_LARGEST = 1e9


@dataclass(frozen=True)
class LedgerEntry:
    """Budget spent on one release of a prior or of labels.

    Attributes:
      what: Kind of the release: center, prior or labels; request for a run that is only checked against caps.
      epsilon: Epsilon spent, >= 0.
      release: Name of the release. A release is charged once, however often it is made.
      delta: Delta spent, >= 0.
    """

    what: str
    epsilon: float
    release: str
    delta: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Converts the entry to JSON types.

        Returns:
          The object that the ledger holds.
        """
        delta = {"delta": self.delta} if self.delta else {}
        return {"what": self.what, "epsilon": self.epsilon, **delta, "release": self.release}

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> LedgerEntry:
        """Reads an entry.

        Args:
          entry: An object that `to_dict` made.

        Returns:
          The entry.

        Raises:
          ValueError: If epsilon or delta is not a number from 0 to 1e9.
          KeyError: If a key is missing.
          TypeError: If the entry is not an object.
        """
        for bound in (entry["epsilon"], entry.get("delta", 0.0)):
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not 0 <= bound <= _LARGEST:
                raise ValueError(f"epsilon and delta of a ledger entry must be numbers from 0 to {_LARGEST:g}")
        return cls(str(entry["what"]), entry["epsilon"], str(entry["release"]), entry.get("delta", 0.0))


class SpentBudget(NamedTuple):
    """Budget spent on several releases, in exact rationals.

    Attributes:
      epsilon: Sum of the epsilons.
      delta: Sum of the deltas.
    """

    epsilon: Fraction
    delta: Fraction


def compose(entries: Iterable[LedgerEntry]) -> SpentBudget:
    """Adds up distinct releases (basic composition).

    Args:
      entries: Ledger entries. If a release has several, its largest epsilon and its largest delta count.

    Returns:
      The sums.
    """
    epsilons: dict[str, Fraction] = {}
    deltas: dict[str, Fraction] = {}
    for entry in entries:
        epsilons[entry.release] = max(Fraction(entry.epsilon), epsilons.get(entry.release, Fraction(0)))
        deltas[entry.release] = max(Fraction(entry.delta), deltas.get(entry.release, Fraction(0)))
    return SpentBudget(sum(epsilons.values(), Fraction(0)), sum(deltas.values(), Fraction(0)))


@dataclass(frozen=True)
class Caps:
    """Upper bounds on the budget that a ledger adds up to.

    Attributes:
      epsilon: Cap on epsilon; None for no cap.
      delta: Cap on delta; None for no cap.
    """

    epsilon: float | None = None
    delta: float | None = None

    def exceeded(self, spent: SpentBudget) -> str | None:
        """Compares a budget with the caps.

        Args:
          spent: The budget, with the run in question.

        Returns:
          A message that names the flag of an exceeded cap and the sum; None within the caps.
        """
        for name, cap, sum in (("epsilon", self.epsilon, spent.epsilon), ("delta", self.delta, spent.delta)):
            if cap is not None and sum > Fraction(cap):
                return f"--{name}_cap {cap:g} would be exceeded: with this run the {name} spent is {float(sum):g}"
        return None


def release_entries(binding: NoiseBinding, mechanism: MechanismFile, with_labels: bool) -> list[LedgerEntry]:
    """Makes the ledger entries of a release: of a linear center, of the prior, unless it is public, and of the labels.

    Releases are named by what their noise is bound to. A repeated run over the same input under the same key has the
    names of the first and costs nothing; any other run is charged. A prior that was released before, and is published
    again with the mechanism, keeps its name, so that it costs nothing where the ledger has it.

    Args:
      binding: Binding of the release's noise.
      mechanism: The released mechanism.
      with_labels: False for `fit`, which releases no labels.

    Returns:
      Up to three entries; none for `fit` with a public prior and without a center of its own.
    """
    own, unit = prior_release_name(binding), binding.unit
    prior_epsilon = spent(unit, mechanism.prior_epsilon)
    entries = [LedgerEntry("prior", prior_epsilon, mechanism.prior_release or own)] if prior_epsilon else []
    if mechanism.center is not None and mechanism.center.linear is not None and mechanism.center_epsilon:
        center_epsilon = spent(unit, mechanism.center_epsilon)
        entries.insert(0, LedgerEntry("center", center_epsilon, center_release_name(mechanism.center.linear)))
    if with_labels:
        name = f"{own}-{mechanism.randomizer.fingerprint.hex()[:32]}"
        epsilon, delta = mechanism.labels_certified
        entries.append(LedgerEntry("labels", epsilon, name, delta))
    return entries


def unit_details(unit: UnitBound | None) -> dict[str, Any]:
    """Describes the privacy unit of a run.

    Args:
      unit: The privacy unit; None for single records.

    Returns:
      Details for `Ledger.charge`: column and largest number of records; none for single records.
    """
    return {} if unit is None else {"unit": {"column": unit.column, "max_records": unit.max_records}}


def default_ledger_path(target: str) -> str:
    """Finds the default ledger of an output: labeldp_ledger.jsonl in the folder that holds the output.

    Args:
      target: Path of the output.

    Returns:
      Path of the ledger.
    """
    if not is_remote(target):
        return os.path.join(os.path.dirname(target.rstrip("/")), "labeldp_ledger.jsonl")
    return FileSystems.join(FileSystems.split(target.rstrip("/"))[0], "labeldp_ledger.jsonl")


def is_database(place: str) -> bool:
    """Tests whether a ledger is kept in a database.

    Args:
      place: Path of a file, or URL of a database.

    Returns:
      True for URLs of the databases that `ledger_database` knows, with any driver.
    """
    return re.match(r"(sqlite|postgres|postgresql)(\+\w*)?://", place) is not None


def corrupt(name: str, place: str) -> InputError:
    """Error for an entry that cannot be read.

    Args:
      name: Path of the ledger.
      place: Line or row of the entry.

    Returns:
      The exception, to be raised by the caller.
    """
    return InputError(f"ledger {name} is corrupt ({place}); restore it from a backup before releasing again")


class Ledger:
    """Ledger of one dataset: one entry per run, in a file or object of JSON lines or in a database.

    Attributes:
      path: Path of the file, or URL of the database without its password.
    """

    def __init__(self, path: str):
        """Names the ledger, which need not exist yet.

        Args:
          path: Path of a local file, URL of an object on S3 or Google Cloud Storage, or URL of a database.

        Raises:
          InputError: If a URL is malformed, its driver is not installed, or it is on another remote filesystem.
        """
        if is_database(path):
            try:
                from .ledger_database import LedgerDatabase

                self._store = LedgerDatabase(path)
            except ImportError:
                raise InputError(
                    "a ledger in a database needs the extra ledger: pip install 'labeldp[ledger]'"
                ) from None
        elif is_store(path):
            self._store = LedgerObject(path)
        elif is_remote(path):
            raise InputError(
                f"ledger {path}: two runs could charge it at once and exceed a cap, because this filesystem has no "
                "conditional writes; use a local file, s3://, gs://, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
            )
        else:
            self._store = LedgerFile(path)
        self.path = self._store.name

    def runs(self) -> list[dict[str, Any]]:
        """Reads all runs.

        Returns:
          One object per run; its `charges` are ledger entries.

        Raises:
          InputError: If the ledger is corrupt, and names the line of the file or the row of the table; or if it cannot
            be read.
        """
        return self._parsed(self._store.rows())

    def spent(self, more: Sequence[LedgerEntry] = ()) -> SpentBudget:
        """Adds up all distinct releases.

        Args:
          more: Entries to add to those of the ledger.

        Returns:
          The budget spent.
        """
        return _spent(self.runs(), more)

    def has_request(self, request: str) -> bool:
        """Looks for a run of a request: a repetition of it may turn out to be the same release.

        Args:
          request: Name of the request.

        Returns:
          True if the ledger has such a run.
        """
        return any(run["request"] == request for run in self.runs())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks a file against other processes of this machine.

        Databases and object stores need no lock: each charge is one serializable transaction, or one conditional write.

        Yields:
          Nothing.
        """
        with self._store.locked():
            yield

    def charge(self, entries: Sequence[LedgerEntry], caps: Caps, **details: Any) -> None:
        """Appends a run durably. The caller holds the lock.

        Args:
          entries: Releases of the run.
          caps: Caps on the sums.
          **details: Further keys of the entry; `request` among them.

        Raises:
          InputError: If a cap would be exceeded, or the ledger is corrupt or cannot be used; nothing is written then.
        """
        run = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **details,
            "adjacency": "unit" if "unit" in details else "label",
            "charges": [entry.to_dict() for entry in entries],
        }

        def check(rows: Sequence[tuple[str, str]]) -> None:
            exceeded = caps.exceeded(_spent(self._parsed(rows), entries))
            if exceeded:
                raise InputError(f"{exceeded} (ledger {self.path}); nothing is released")

        self._store.append(run, check)

    def _parsed(self, rows: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        runs = []
        for place, text in rows:
            try:
                run = json.loads(text)
                _ = str(run["request"]), [LedgerEntry.from_dict(entry) for entry in run["charges"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise corrupt(self.path, place) from None
            runs.append(run)
        return runs


def _spent(runs: Iterable[dict[str, Any]], more: Sequence[LedgerEntry]) -> SpentBudget:
    before = [LedgerEntry.from_dict(entry) for run in runs for entry in run["charges"]]
    return compose([*before, *more])
