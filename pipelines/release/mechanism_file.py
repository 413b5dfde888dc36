"""Mechanism file: written by `fit`, `solve` and `privatize`, read by `apply`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...mechanisms.core.budget import BudgetSplit
from ...mechanisms.core.label_rounding import NEAREST, ROUNDINGS
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.registry import default_rounding
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from ...transforms.noise_binding import NoiseBinding
from ...transforms.noisy_prior import PriorRelease
from ..study.prior_file import parse_prior_release

MECHANISM_NAME = "mechanism.json"


@dataclass(frozen=True)
class MechanismFile:
    """Contents of a mechanism file.

    Attributes:
      randomizer: The randomizer.
      prior: Prior that it was solved for.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      rounding: Rounding of labels that are not in the domain: nearest or randomized.
      prior_release: Name of the prior's release (`prior_release_name`); None if the file does not name it.
    """

    randomizer: Randomizer
    prior: Prior
    prior_epsilon: float
    rounding: str = NEAREST
    prior_release: str | None = None

    @classmethod
    def of_release(cls, randomizer: Randomizer, release: PriorRelease) -> MechanismFile:
        """Makes the contents for a randomizer that was solved for a released prior.

        Args:
          randomizer: The randomizer.
          release: The released prior.

        Returns:
          The contents.
        """
        return cls(randomizer, release.prior, release.budget.prior, release.rounding, prior_release_name(release))

    @property
    def budget(self) -> BudgetSplit:
        """Epsilon of the prior and of the randomizer."""
        return BudgetSplit(self.prior_epsilon, self.randomizer.epsilon)

    def to_text(self) -> str:
        """Writes the file's text.

        Returns:
          JSON, with a newline at its end.
        """
        released: dict[str, Any] = {"weights": self.prior.weights.tolist(), "epsilon": self.prior_epsilon}
        if self.prior_release is not None:
            released["release"] = self.prior_release
        return self.randomizer.to_json(prior=released, rounding=self.rounding) + "\n"


def read_mechanism_file(path: str) -> MechanismFile:
    """Reads a mechanism file and certifies its randomizer.

    Args:
      path: Path on any filesystem.

    Returns:
      The contents.

    Raises:
      InputError: If the file cannot be read or used; names the file.
    """
    text = read_text(path)
    try:
        randomizer = Randomizer.from_json(text)
        document = json.loads(text)
        prior, rounding = document["prior"], document.get("rounding", default_rounding(randomizer.mechanism))
        if rounding not in ROUNDINGS:
            raise InputError(f"{path} cannot be used: its rounding is not {' or '.join(ROUNDINGS)}")
        weights, (epsilon, name) = np.array(prior["weights"], np.float64), parse_prior_release(prior)
        return MechanismFile(randomizer, Prior(randomizer.labels, weights), epsilon, rounding, name)
    except (KeyError, TypeError):
        raise InputError(f"{path} has no prior: it was not written by fit, solve or privatize") from None
    except ValueError as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def prior_release_name(binding: NoiseBinding) -> str:
    """Names the release of a prior by everything that its noise is bound to, apart from the secret key.

    Args:
      binding: Binding of the release's noise.

    Returns:
      32 hexadecimal digits; the same input under the same key gives the same name.
    """
    spent = [binding.budget.prior, binding.budget.labels]
    noise = [f"{binding.digest:064x}", binding.column, list(binding.domain), spent, binding.rounding]
    return hashlib.blake2b(json.dumps(noise).encode(), digest_size=16, person=b"labeldp ledger").hexdigest()
