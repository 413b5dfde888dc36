"""The mechanism file: written by `fit`, `solve` and `privatize`, read by `apply`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...mechanisms.core.label_rounding import NEAREST, ROUNDINGS
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.registry import default_rounding
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from ...transforms.noise_binding import NoiseBinding
from ...transforms.noisy_prior import PriorRelease
from ..study.prior_file import release_of_prior

MECHANISM_NAME = "mechanism.json"


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
