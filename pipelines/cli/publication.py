"""Publication of a run whose job has ended: by `privatize`, `fit` and `apply` right after it, or by `finish`."""

from __future__ import annotations

from apache_beam.options.pipeline_options import PipelineOptions

from ..job.validation_passes import check_output
from ..ledger.ledger import Ledger
from ..publish.output_folder import Staging, publish_file, publish_folder, publishing
from ..publish.protocol import charged
from ..publish.release_steps import (
    ReleasedLabel,
    charge_of,
    measured_results,
    read_results,
    release_files,
    remove_segments,
    write_manifests,
)
from ..publish.request import Run
from ..publish.signature import sign_release
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.signing_key import SigningKey
from .announcement import announce


def publish_results(
    run: Run, staging: Staging, options: PipelineOptions, key: SigningKey | None = None, verbose: bool = False
) -> list[ReleasedLabel]:
    """Checks the results of a job, signs the release, charges the ledger and publishes it, in this order.

    Without a signing key, it is not signed. `verbose` prints all its facts. It may be repeated after an error or a
    kill, at whatever point. Raises InputError if a check fails.
    """
    request = run.request
    fit, target, ledger = request.command == "fit", request.target, Ledger(request.ledger)
    released = read_results(run, staging)
    manifests: tuple[str, ...] = ()
    if not fit:
        released = measured_results(request, released, staging)
        manifests = write_manifests(request, released, staging)
        remove_segments(staging)
        if request.validation is not None:
            mechanisms = {each.label.name: each.mechanism for each in released}
            check_output(request, mechanisms, options, staging)
        manifests = sign_release(staging, release_files(request, released), manifests, key)
    with charged(ledger, charge_of(request, released), request.caps, publishing(staging, target)):
        if fit:
            publish_file(staging, MECHANISM_NAME, target)
        else:
            publish_folder(staging, target, manifests)
        # An interrupt before this would be reported as "nothing is released" when something is.
        announce(request, released, key, verbose)
    return released
