"""The ledger: what was released from a log, what that cost, and what it may cost at most."""

from __future__ import annotations

import contextlib
import json
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
    """Epsilon, and delta, spent on one thing. release: what was released; the same release is charged once, however
    often it is made."""

    what: str
    epsilon: float
    release: str
    delta: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As the ledger has it."""
        delta = {"delta": self.delta} if self.delta else {}
        return {"what": self.what, "epsilon": self.epsilon, **delta, "release": self.release}

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> LedgerEntry:
        """Raises ValueError, KeyError or TypeError for what is no charge."""
        for bound in (entry["epsilon"], entry.get("delta", 0.0)):
            if isinstance(bound, bool) or not (Fraction(bound) >= 0):
                raise ValueError("a charge must not be negative")
        return cls(str(entry["what"]), entry["epsilon"], str(entry["release"]), entry.get("delta", 0.0))


class Spent(NamedTuple):
    """Exact sums (basic composition)."""

    epsilon: Fraction
    delta: Fraction


def total(charges: Iterable[LedgerEntry]) -> Spent:
    """What they come to: of one release, which may be charged more than once, the most counts."""
    epsilons: dict[str, Fraction] = {}
    deltas: dict[str, Fraction] = {}
    for charge in charges:
        epsilons[charge.release] = max(Fraction(charge.epsilon), epsilons.get(charge.release, Fraction(0)))
        deltas[charge.release] = max(Fraction(charge.delta), deltas.get(charge.release, Fraction(0)))
    return Spent(sum(epsilons.values(), Fraction(0)), sum(deltas.values(), Fraction(0)))


@dataclass(frozen=True)
class Caps:
    """What a ledger may come to; None for no bound."""

    epsilon: float | None = None
    delta: float | None = None

    def exceeded(self, spent: Spent) -> str | None:
        """Which flag forbids this, and what it would come to; None when all is within the caps."""
        for name, cap, sum in (("epsilon", self.epsilon, spent.epsilon), ("delta", self.delta, spent.delta)):
            if cap is not None and sum > Fraction(cap):
                return f"--{name}_cap {cap:g} would be exceeded: with this run the {name} spent comes to {float(sum):g}"
        return None


def charges(binding: NoiseBinding, mechanism: MechanismFile, with_labels: bool) -> list[LedgerEntry]:
    """What a release costs: the prior, unless it is public, and the labels, if they were released.

    Releases are named by what their noise is bound to, so a run again over the same input under the same secret
    costs nothing, and any other run is charged. A prior that was released before, and is now published again with
    the mechanism, has its name from then: it costs nothing where the ledger has it.
    """
    own, spent = prior_release_name(binding), mechanism.prior_epsilon
    found = [LedgerEntry("prior", spent, mechanism.prior_release or own)] if spent else []
    if with_labels:
        randomizer = mechanism.randomizer
        name, certificate = f"{own}-{randomizer.fingerprint.hex()[:32]}", randomizer.certificate()
        found.append(LedgerEntry("labels", certificate.epsilon, name, certificate.delta))
    return found


def ledger_beside(target: str) -> str:
    """Where the ledger of an output lies by default: in the folder that holds the output."""
    return FileSystems.join(FileSystems.split(target.rstrip("/"))[0], "labeldp_ledger.jsonl")


class Ledger:
    """What was released from one log: a file of JSON lines, one per run. Epsilons and deltas add up."""

    def __init__(self, path: str):
        """path: the file; it need not exist yet."""
        self.path = path

    def entries(self) -> list[dict[str, Any]]:
        """All runs so far. Raises InputError when the file is damaged."""
        if not FileSystems.exists(self.path):
            return []
        try:
            entries = [json.loads(line) for line in read_text(self.path).splitlines() if line.strip()]
            for entry in entries:
                _ = str(entry["request"]), [LedgerEntry.from_dict(charge) for charge in entry["charges"]]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"ledger {self.path} is damaged: mend it, it says what was spent") from None
        return entries

    def spent(self, more: Sequence[LedgerEntry] = ()) -> Spent:
        """What all distinct releases so far cost, and `more`."""
        before = [LedgerEntry.from_dict(charge) for entry in self.entries() for charge in entry["charges"]]
        return total([*before, *more])

    def knows(self, request: str) -> bool:
        """Whether a run of the same request is in the ledger: it may turn out to be the same release."""
        return any(entry["request"] == request for entry in self.entries())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes of this machine from the ledger meanwhile."""
        if is_remote(self.path):
            yield
            return
        import fcntl

        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def charge(self, found: Sequence[LedgerEntry], caps: Caps, **entry: Any) -> None:
        """Writes a run down. Raises InputError, and writes nothing, when a cap would be exceeded."""
        exceeded = caps.exceeded(self.spent(found))
        if exceeded:
            raise InputError(f"{exceeded} (ledger {self.path}); nothing is released")
        line = json.dumps(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **entry,
                "adjacency": "label",
                "charges": [charge.to_dict() for charge in found],
            }
        )
        before = read_text(self.path) if FileSystems.exists(self.path) else ""
        # Somebody may have edited the file and left out the end of its last line.
        more = f"{line}\n" if before.endswith("\n") or not before else f"\n{line}\n"
        if is_remote(self.path):
            write_text(self.path, before + more)
            return
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(more)
            file.flush()
            os.fsync(file.fileno())
