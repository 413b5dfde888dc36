"""Protocol of a release: the only code that checks caps, charges a ledger and lets a caller publish.

A run passes three steps, whatever it releases (shards, a mechanism file, a label range, labels in memory):

1. `check_caps` refuses it before it starts if it would exceed a cap.
2. It stages what it is going to release, in a folder that `staging_folder` makes, or holds it in memory, and makes all
   checks that can fail.
3. `charged` charges it, with the ledger locked and the target held; its block publishes. Nothing is published without
   a charge. A run that is killed within the block has charged what it did not publish: its repetition costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.unit_bound import PrivacyUnit
from ...transforms.progress_log import LOGGER
from ..errors import FieldError, one_line
from ..ledger.ledger import Ledger
from ..ledger.spent_budget import CapError, Caps, LedgerEntry
from ..spec.label import Budget
from ..spec.mechanism_file import MechanismFile, center_release_name
from .signals import signals_ignored


@dataclass(frozen=True)
class Charge:
    """Entry of the ledger for one run.

    Attributes:
      command: privatize, fit, apply or domain.
      request: Name of the request.
      label: Names of the released label columns, with commas.
      unit: Privacy unit that the epsilons are for.
      records: Number of records that were counted.
      digest: Keyed digest of the input, in hexadecimal digits; of several labels, with commas.
      output: Path of the output, or what stands for it.
      entries: What is released, with its epsilon and delta.
      mechanism: Fingerprints of the mechanisms, with commas; None without one.
      solved: Whether the run solved for its mechanism; one that was given is another release for another file.
    """

    command: str
    request: str
    label: str
    unit: PrivacyUnit
    records: int
    digest: str
    output: str
    entries: Sequence[LedgerEntry]
    mechanism: str | None = None
    solved: bool = True

    def write(self, ledger: Ledger, caps: Caps) -> None:
        """Charges a ledger, whose lock the caller holds, and logs it. Raises InputError if a cap would be exceeded."""
        runs, spent = ledger.runs(), ledger.spent(self.entries)
        known = {charge["release"] for run in runs for charge in run["charges"]}
        repeated = all(entry.release in known for entry in self.entries)
        lost = self._lost_release(runs) if self.solved and not repeated else None
        again = (
            f"this run repeats the release {lost}, but its labels are a charge of their own: that release is "
            "no longer there or was changed, and the mechanism that was computed now is another one"
            if lost is not None
            else None
        )
        drawn: dict[str, Any] = {} if self.mechanism is None else {"mechanism_fingerprint": self.mechanism}
        try:
            ledger.charge(
                self.entries,
                caps,
                command=self.command,
                request=self.request,
                label=self.label,
                **self.unit.stated,
                records=self.records,
                input_digest=self.digest,
                **drawn,
                output=self.output,
            )
        except CapError as error:
            raise error.extended("; {again}" if again else "", again=again) from None
        if again:
            LOGGER.warning("%s", again)
        if self.entries:
            what = "it has this release, so nothing is charged" if repeated else "charged"
            LOGGER.info("ledger %s: %s; epsilon %.6g in all", one_line(ledger.path), what, spent.epsilon)

    def _lost_release(self, runs: Sequence[dict[str, Any]]) -> str | None:
        """Output of the release that the run should have repeated, if its labels are about to be charged again.

        That is the latest run of the same request over the same input, whose labels were drawn by another mechanism;
        None if there is none.
        """
        same = [run for run in runs if run["request"] == self.request and run.get("input_digest") == self.digest]
        return str(same[-1].get("output")) if same else None


def check_caps(
    ledger: Ledger,
    request_name: str,
    budget: Budget,
    caps: Caps,
    unit: PrivacyUnit,
    fitted: MechanismFile | None = None,
) -> None:
    """Refuses to start a run that would exceed a cap. The ledger checks again before anything is released.

    A request that is in the ledger may start: over unchanged input it is the same release, which costs nothing.
    `fitted` is the mechanism file of `apply`, whose prior is published again. Raises FieldError if a cap would be
    exceeded, and InputError if the ledger is corrupt.
    """
    requested = [LedgerEntry("request", budget.epsilon, f"request {request_name}", budget.delta)]
    if fitted is not None:
        prior = fitted.drawing.prior_release or f"prior of request {request_name}"
        requested.append(LedgerEntry("prior", fitted.unit.spent(fitted.prior_epsilon), prior))
        if (center := center_release_name(fitted)) is not None:
            requested.append(LedgerEntry("center", fitted.unit.spent(fitted.center_epsilon), center))
    # The ledger is read without caps as well: a corrupt one is to be found before the job runs.
    exceeded = ledger.exceeded(caps, requested, unit.column)
    if exceeded and not ledger.has_request(request_name):
        more = f"{exceeded.message}; ledger {{ledger_path}} lists what was spent before"
        raise FieldError(more, ledger_path=ledger.path, **exceeded.values)


@contextlib.contextmanager
def charged(
    ledger: Ledger, charge: Charge, caps: Caps, target: AbstractContextManager[object] | None = None
) -> Iterator[None]:
    """Charges a release and lets its block publish it.

    `target` holds the target and makes what is staged durable, as `publishing` does; None for labels in memory. Signals
    are ignored within the block, which must be done completely. Raises InputError if a cap would be exceeded.
    """
    with ExitStack() as until_the_end, ledger.locked(), nullcontext() if target is None else target:
        charge.write(ledger, caps)
        # The end of the target and the ledger belongs to the block.
        until_the_end.enter_context(signals_ignored())
        yield


def release_entries(binding: NoiseBinding, mechanism: MechanismFile, with_labels: bool) -> list[LedgerEntry]:
    """Makes the ledger entries of a release: of a linear center, of the prior, unless it is public, and of the labels.

    Releases are named by what their noise is bound to. A repeated run over the same input under the same key has the
    names of the first and costs nothing; any other run is charged. A prior that was released before, and is published
    again with the mechanism, keeps its name, so that it costs nothing where the ledger has it.

    Without `with_labels`, as for `fit`, no labels are released: there are no entries then for a public prior without a
    center of its own.
    """
    own, unit = binding.release_name, binding.unit
    prior_epsilon = unit.spent(mechanism.prior_epsilon)
    entries = [LedgerEntry("prior", prior_epsilon, mechanism.drawing.prior_release or own)] if prior_epsilon else []
    center, center_epsilon = center_release_name(mechanism), unit.spent(mechanism.center_epsilon)
    if center is not None and center_epsilon:
        entries.insert(0, LedgerEntry("center", center_epsilon, center))
    if with_labels and mechanism.drawing.solved:
        name = f"{own}-{mechanism.drawing.fingerprint[:32]}"
        epsilon, delta = mechanism.labels_certified
        entries.append(LedgerEntry("labels", epsilon, name, delta))
    return entries
