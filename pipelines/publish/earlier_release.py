"""Earlier releases of a request in the ledger: their mechanisms are used again, so that a repeated run costs nothing.

The labels of a release are charged under its input and its mechanism. A solver that gives another result on another
machine would make the repeated run a second release, which is charged. So the repeated run takes the mechanism from the
output of the first one, if it is still there.
"""

from __future__ import annotations

from typing import Any

from apache_beam.io.filesystem import BeamIOError

from ...mechanisms.release.prior_release import EarlierMechanism
from ...transforms.errors import InputError
from ..ledger.ledger import Ledger
from ..spec.mechanism_file import MECHANISM_NAME, read_mechanism_file
from .output_folder import released_path

# The mechanisms travel in the job graph. A log that changes between runs has one for each version.
_MOST_EARLIER = 8


def earlier_mechanisms(
    ledger: Ledger, request_name: str, place: int = 0, label_folder: str = ""
) -> tuple[EarlierMechanism, ...]:
    """Mechanisms of the earlier releases of a request, one for each of at most eight inputs, the latest first.

    A mechanism file that is missing, does not certify or does not have the fingerprint of the ledger is left out.

    Inputs are told apart by their digests. The name of the request binds the mechanism's name and its parameters.
    `place` is that of the label among those of the request, and `label_folder` is its folder in the release, of
    `label_folders`. Raises InputError if the ledger is corrupt.
    """
    found: dict[int, EarlierMechanism] = {}
    for run in reversed(ledger.runs()):
        if run["request"] != request_name or len(found) == _MOST_EARLIER:
            continue
        try:
            digest = int(run["input_digest"].split(",")[place], 16)
            if digest not in found:
                found[digest] = _read(run, digest, place, label_folder)
        except (InputError, BeamIOError, AttributeError, LookupError, TypeError, ValueError):
            continue
    return tuple(found.values())


def _read(run: dict[str, Any], digest: int, place: int, label_folder: str) -> EarlierMechanism:
    output = run["output"] if run["command"] == "fit" else released_path(run["output"], label_folder, MECHANISM_NAME)
    file = read_mechanism_file(output)
    if file.randomizer.fingerprint.hex() != run["mechanism_fingerprint"].split(",")[place]:
        raise ValueError("this is another mechanism than the charged one")
    return EarlierMechanism(digest, file.prior, file.budget, file.rounding, file.randomizer)
