"""The output folder, its manifest and the mechanism file: what becomes public, and when.

Everything is written to a hidden folder beside the output and moved in at the end, after the ledger has been
charged: a failed run leaves nothing that looks finished, and nothing is released that was not charged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
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

from ..mechanisms.label_rounding import NEAREST, ROUNDINGS
from ..mechanisms.losses import LOSSES
from ..mechanisms.prior import Prior, round_up
from ..mechanisms.randomizer import Randomizer
from ..mechanisms.registry import default_rounding
from ..transforms.errors import InputError
from ..transforms.noise_key import is_remote
from ..transforms.prior import NoiseBinding, PriorRelease
from ..transforms.publish import delete_folder
from ..transforms.write import create
from .prior_file import release_of_prior

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
    """A mechanism file. prior: the weights that it was solved for; prior_epsilon: what their release spent. rounding:
    how labels between those of the domain are brought to it. prior_release: `prior_release_name` of the release, None
    where the file does not say."""

    randomizer: Randomizer
    prior: Prior
    prior_epsilon: float
    rounding: str = NEAREST
    prior_release: str | None = None

    def to_text(self) -> str:
        """The file's text."""
        released: dict[str, Any] = {"weights": self.prior.weights.tolist(), "epsilon": self.prior_epsilon}
        if self.prior_release is not None:
            released["release"] = self.prior_release
        return self.randomizer.to_json(prior=released, rounding=self.rounding) + "\n"


def mechanism_file(randomizer: Randomizer, release: PriorRelease) -> MechanismFile:
    """Of a randomizer that was solved for a released prior."""
    return MechanismFile(randomizer, release.prior, release.epsilons[0], release.rounding, prior_release_name(release))


def prior_release_name(binding: NoiseBinding) -> str:
    """Names the release of a prior, in 32 hexadecimal digits, by what its noise is bound to: the same input under the
    same secret gives the same name."""
    noise = [f"{binding.digest:064x}", binding.column, list(binding.domain), list(binding.epsilons), binding.rounding]
    return hashlib.blake2b(json.dumps(noise).encode(), digest_size=16, person=b"labeldp ledger").hexdigest()


def read_mechanism_file(path: str) -> MechanismFile:
    """Reads and certifies a mechanism file. Raises InputError, naming it, when it cannot be used."""
    text = read_text(path)
    try:
        randomizer = Randomizer.from_json(text)
        document = json.loads(text)
        prior, rounding = document["prior"], document.get("rounding", default_rounding(randomizer.mechanism))
        if rounding not in ROUNDINGS:
            raise ValueError(f"its rounding is not {' or '.join(ROUNDINGS)}")
        weights, (epsilon, name) = np.array(prior["weights"], np.float64), release_of_prior(prior)
        return MechanismFile(randomizer, Prior(randomizer.labels, weights), epsilon, rounding, name)
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
    """Writes a text file on any filesystem, in a folder that is there, under another name first."""
    partial = f"{path}.{uuid.uuid4().hex}"
    with create(partial) as file:
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
                "rounding": self.binding.rounding,
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
            facts["rounding"],
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
            with contextlib.suppress(BeamIOError, OSError):
                delete_folder(staging)


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
        "delta": randomizer.delta,
        "certified_delta": certificate.delta,
        "mechanism": randomizer.mechanism,
        "parameters": randomizer.parameters,
        "mechanism_fingerprint": randomizer.fingerprint.hex(),
        "domain": {"min": binding.domain[0], "max": binding.domain[-1], "labels": len(binding.domain)},
        "rounding": binding.rounding,
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
