"""Privacy ledger: what was released from a dataset, the budget that was spent, and caps on it.

The ledger is a file of JSON lines, one per run. Epsilons and deltas of distinct releases add up (basic composition).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError
from ...transforms.io.filesystems import is_remote, read_text, write_text
from ...transforms.noise_binding import NoiseBinding
from .mechanism_file import MechanismFile, prior_release_name


@dataclass(frozen=True)
class LedgerEntry:
    """Budget spent on one release of a prior or of labels.

    Attributes:
      what: Kind of the release: prior or labels; request for a run that is only checked against caps.
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
          ValueError: If epsilon or delta is not a finite number, or negative.
          KeyError: If a key is missing.
          TypeError: If the entry is not an object.
        """
        for bound in (entry["epsilon"], entry.get("delta", 0.0)):
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not 0 <= bound < math.inf:
                raise ValueError("epsilon and delta of a ledger entry must be finite numbers, and not negative")
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
    """Makes the ledger entries of a release: of the prior, unless it is public, and of the labels.

    Releases are named by what their noise is bound to. A repeated run over the same input under the same key has the
    names of the first and costs nothing; any other run is charged. A prior that was released before, and is published
    again with the mechanism, keeps its name, so that it costs nothing where the ledger has it.

    Args:
      binding: Binding of the release's noise.
      mechanism: The released mechanism.
      with_labels: False for `fit`, which releases no labels.

    Returns:
      One or two entries; none for `fit` with a public prior.
    """
    own, prior_epsilon = prior_release_name(binding), mechanism.prior_epsilon
    entries = [LedgerEntry("prior", prior_epsilon, mechanism.prior_release or own)] if prior_epsilon else []
    if with_labels:
        randomizer = mechanism.randomizer
        name, certificate = f"{own}-{randomizer.fingerprint.hex()[:32]}", randomizer.certificate()
        entries.append(LedgerEntry("labels", certificate.epsilon, name, certificate.delta))
    return entries


def default_ledger_path(target: str) -> str:
    """Finds the default ledger of an output: labeldp_ledger.jsonl in the folder that holds the output.

    Args:
      target: Path of the output.

    Returns:
      Path of the ledger.
    """
    return FileSystems.join(FileSystems.split(target.rstrip("/"))[0], "labeldp_ledger.jsonl")


class Ledger:
    """Ledger of one dataset: a file of JSON lines, one per run."""

    def __init__(self, path: str):
        """Names the file, which need not exist yet.

        Args:
          path: Path on any filesystem.
        """
        self.path = path

    def runs(self) -> list[dict[str, Any]]:
        """Reads all runs.

        Returns:
          One object per line; its `charges` are ledger entries.

        Raises:
          InputError: If the file is corrupt; names the file and the line.
        """
        if not FileSystems.exists(self.path):
            return []
        runs = []
        for number, line in enumerate(read_text(self.path).splitlines(), start=1):
            if not line.strip():
                continue
            try:
                run = json.loads(line)
                _ = str(run["request"]), [LedgerEntry.from_dict(entry) for entry in run["charges"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InputError(
                    f"ledger {self.path} is corrupt (line {number}); restore it from a backup before releasing again"
                ) from None
            runs.append(run)
        return runs

    def spent(self, more: Sequence[LedgerEntry] = ()) -> SpentBudget:
        """Adds up all distinct releases.

        Args:
          more: Entries to add to those of the ledger.

        Returns:
          The budget spent.
        """
        before = [LedgerEntry.from_dict(entry) for run in self.runs() for entry in run["charges"]]
        return compose([*before, *more])

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
        """Locks the ledger against other processes of this machine. A ledger on a remote filesystem has no lock.

        Yields:
          Nothing.
        """
        if is_remote(self.path):
            yield
            return
        import fcntl

        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def charge(self, entries: Sequence[LedgerEntry], caps: Caps, **details: Any) -> None:
        """Appends a run and syncs the file to disk.

        Args:
          entries: Releases of the run.
          caps: Caps on the sums.
          **details: Further keys of the line; `request` among them.

        Raises:
          InputError: If a cap would be exceeded or the ledger is corrupt; nothing is written then.
        """
        exceeded = caps.exceeded(self.spent(entries))
        if exceeded:
            raise InputError(f"{exceeded} (ledger {self.path}); nothing is released")
        line = json.dumps(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **details,
                "adjacency": "label",
                "charges": [entry.to_dict() for entry in entries],
            }
        )
        before = read_text(self.path) if FileSystems.exists(self.path) else ""
        # An editor may have left out the newline at the end of the last line.
        more = f"{line}\n" if before.endswith("\n") or not before else f"\n{line}\n"
        if is_remote(self.path):
            write_text(self.path, before + more)
            return
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(more)
            file.flush()
            os.fsync(file.fileno())
