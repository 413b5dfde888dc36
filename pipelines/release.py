"""The output folder, its manifest, the mechanism file and the ledger: what becomes public, and when.

Everything is written to a hidden folder beside the output and moved in at the end, after the ledger has been
charged: a failed run leaves nothing that looks finished, and nothing is released that was not charged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..mechanisms.losses import LOSSES
from ..mechanisms.prior import Prior, round_up
from ..mechanisms.randomizer import Randomizer
from ..transforms.errors import InputError
from ..transforms.noise_key import is_remote
from ..transforms.prior import NoiseBinding

FORMAT = "labeldp-release-1"
ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record; "
    "features, the number of records and which records have a label are public"
)
MECHANISM_NAME = "mechanism.json"
MANIFEST_NAME = "release.json"
DEAD_LETTERS_NAME = "dead_letters.jsonl"
DATA_NAME = "data"
_DELETIONS = 3


@dataclass(frozen=True)
class MechanismFile:
    """A mechanism file. prior: the weights that it was solved for; prior_epsilon: what their release spent."""

    randomizer: Randomizer
    prior: Prior
    prior_epsilon: float


def mechanism_text(randomizer: Randomizer, prior: Prior, prior_epsilon: float) -> str:
    """The text of a mechanism file with the prior in it."""
    return randomizer.to_json(prior={"weights": prior.weights.tolist(), "epsilon": prior_epsilon}) + "\n"


def read_mechanism_file(path: str) -> MechanismFile:
    """Reads and certifies a mechanism file. Raises InputError, naming it, when it cannot be used."""
    text = read_text(path)
    try:
        randomizer = Randomizer.from_json(text)
        if not randomizer.pure:
            raise InputError(f"{path} has a delta: jobs promise pure label DP, and refuse it")
        prior = json.loads(text)["prior"]
        weights, epsilon = np.array(prior["weights"], np.float64), float(prior["epsilon"])
        return MechanismFile(randomizer, Prior(randomizer.labels, weights), epsilon)
    except (KeyError, TypeError):
        raise InputError(f"{path} has no prior: it was not written by fit, solve or privatize") from None
    except ValueError as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def read_text(path: str) -> str:
    """The text of a file on any filesystem. Raises InputError when it cannot be read."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read().decode()
    except Exception:
        raise InputError(f"{path} cannot be read: check the path") from None


def write_text(path: str, text: str) -> None:
    """Writes a text file on any filesystem, under another name first."""
    partial = f"{path}.{uuid.uuid4().hex}"
    with FileSystems.create(partial, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(text.encode())
    FileSystems.rename([partial], [path])


@dataclass(frozen=True)
class Facts:
    """What a finished job says of itself, all of it safe to publish.

    binding: digest, domain, epsilons and counts. digest_applied: of the labels that were privatized, None for fit.
    shards: records per shard file name.
    """

    binding: NoiseBinding
    digest_applied: int | None
    shards: dict[str, int]

    def to_json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "digest": f"{self.binding.digest:064x}",
                "column": self.binding.column,
                "domain": list(self.binding.domain),
                "epsilons": list(self.binding.epsilons),
                "records": self.binding.records,
                "unusable": self.binding.unusable,
                "digest_applied": None if self.digest_applied is None else f"{self.digest_applied:064x}",
                "shards": self.shards,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """The facts of `to_json`."""
        facts = json.loads(text)
        applied = facts["digest_applied"]
        binding = NoiseBinding(
            int(facts["digest"], 16),
            facts["column"],
            tuple(facts["domain"]),
            (facts["epsilons"][0], facts["epsilons"][1]),
            facts["records"],
            facts["unusable"],
        )
        return cls(binding, None if applied is None else int(applied, 16), facts["shards"])

    def check_same_input(self) -> None:
        """Raises InputError when the input changed between the two passes over it."""
        if self.digest_applied is not None and self.digest_applied != self.binding.digest:
            raise InputError(
                "the input changed while the job ran: nothing is released; run again when the files are complete"
            )


@contextlib.contextmanager
def staging_folder(target: str) -> Iterator[str]:
    """A hidden folder beside the target, removed with all that is left in it when the block ends."""
    parent, name = FileSystems.split(target.rstrip("/"))
    staging = FileSystems.join(parent, f".{name}.{uuid.uuid4().hex[:12]}")
    FileSystems.mkdirs(staging)
    try:
        yield staging
    finally:
        # More than once: a runner that was interrupted may still be writing.
        for _ in range(_DELETIONS):
            if FileSystems.exists(staging) or is_remote(staging):
                with contextlib.suppress(BeamIOError):
                    FileSystems.delete([staging])


def publish_folder(staging: str, output: str) -> None:
    """Moves a finished folder to its place; on a local disk in one step."""
    if is_remote(output):
        found = FileSystems.match([FileSystems.join(staging, "**")])[0].metadata_list
        moves = [(entry.path, output.rstrip("/") + entry.path[len(staging.rstrip("/")) :]) for entry in found]
        # The manifest comes last: a folder without one is not a release.
        moves.sort(key=lambda move: move[1].endswith(MANIFEST_NAME))
        for source, destination in moves:
            FileSystems.rename([source], [destination])
        return
    # An empty folder is replaced; anything else makes this fail.
    os.rename(staging, output)


def manifest(facts: Facts, mechanism: MechanismFile, epsilon: float, details: dict[str, Any]) -> dict[str, Any]:
    """The release's own account of itself. epsilon: the whole budget. details: what the command adds."""
    binding, randomizer = facts.binding, mechanism.randomizer
    certificate = randomizer.certificate()
    certified = round_up(Fraction(binding.epsilons[0]) + Fraction(certificate.epsilon))
    losses = {}
    for name, loss in LOSSES.items():
        if not loss.nonnegative or randomizer.labels[0] >= 0:
            value = randomizer.expected_loss(mechanism.prior, loss)
            losses[name] = value if np.isfinite(value) else None
    return {
        "format": FORMAT,
        "adjacency": ADJACENCY,
        "epsilon": epsilon,
        "prior_epsilon": binding.epsilons[0],
        "randomizer_epsilon": binding.epsilons[1],
        "certified_epsilon": certified,
        "mechanism": randomizer.mechanism,
        "parameters": randomizer.parameters,
        "mechanism_fingerprint": randomizer.fingerprint.hex(),
        "domain": {"min": binding.domain[0], "max": binding.domain[-1], "labels": len(binding.domain)},
        "records": binding.records,
        "records_without_label": binding.unusable,
        "input_digest": f"{binding.digest:064x}",
        "expected_loss": losses,
        "max_bias": certificate.max_bias,
        **details,
        "shards": facts.shards,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What the release was made with."""
    try:
        own = version("labeldp")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "labeldp": own,
        "python": platform.python_version(),
        "apache-beam": beam.__version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }


@dataclass(frozen=True)
class Charge:
    """Epsilon spent on one thing. release: what was released; the same release is charged once, however often
    it is made."""

    what: str
    epsilon: float
    release: str


def charges(binding: NoiseBinding, randomizer: Randomizer | None, with_prior: bool) -> list[Charge]:
    """What a release costs: the prior, if it was released, and the labels, if they were.

    Releases are named by what their noise is bound to, so a run again over the same input under the same secret
    costs nothing, and any other run is charged.
    """
    bound_to = json.dumps([f"{binding.digest:064x}", binding.column, list(binding.domain), list(binding.epsilons)])
    prior = hashlib.blake2b(bound_to.encode(), digest_size=16, person=b"labeldp ledger").hexdigest()
    found = [Charge("prior", binding.epsilons[0], prior)] if with_prior else []
    if randomizer is not None:
        found.append(Charge("labels", randomizer.certificate().epsilon, f"{prior}-{randomizer.fingerprint.hex()[:32]}"))
    return found


def ledger_beside(target: str) -> str:
    """Where the ledger of an output lies by default: in the folder that holds the output."""
    return FileSystems.join(FileSystems.split(target.rstrip("/"))[0], "labeldp_ledger.jsonl")


class Ledger:
    """What was released from one log: a file of JSON lines, one per run. Epsilons add up (basic composition)."""

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
                _ = str(entry["request"]), [(str(c["release"]), Fraction(c["epsilon"])) for c in entry["charges"]]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"ledger {self.path} is damaged: mend it, it says what was spent") from None
        return entries

    def spent(self, more: list[Charge] | None = None) -> Fraction:
        """The epsilon of all distinct releases so far, and of `more`."""
        epsilons = {
            charge["release"]: Fraction(charge["epsilon"]) for entry in self.entries() for charge in entry["charges"]
        }
        epsilons.update({charge.release: Fraction(charge.epsilon) for charge in more or []})
        return sum(epsilons.values(), Fraction(0))

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

    def charge(self, found: list[Charge], cap: float | None, **entry: Any) -> None:
        """Writes a run down. Raises InputError, and writes nothing, when the cap would be exceeded."""
        spent = self.spent(found)
        if cap is not None and spent > Fraction(cap):
            raise InputError(
                f"--epsilon_cap {cap:g} would be exceeded: with this run the ledger {self.path} comes to "
                f"{float(spent):g}; nothing is released"
            )
        line = json.dumps(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **entry,
                "adjacency": "label",
                "charges": [{"what": c.what, "epsilon": c.epsilon, "release": c.release} for c in found],
            }
        )
        if is_remote(self.path):
            before = read_text(self.path) if FileSystems.exists(self.path) else ""
            write_text(self.path, f"{before}{line}\n")
            return
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
