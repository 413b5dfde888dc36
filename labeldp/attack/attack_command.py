"""`labeldp attack`: attacks a mechanism file or a sampler as a black box, and prints what the attacks prove."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction

from ..mechanisms.analysis.privacy_attacks import (
    LabelInference,
    label_inference,
    label_inferences,
    largest_advantage,
    largest_advantage_of_all,
)
from ..mechanisms.center.center import Center
from ..mechanisms.center.class_model import DRAWN_BY_CENTER
from ..mechanisms.core.budget import round_up
from ..pipelines.cli.exit_codes import FAILURE, SUCCESS, run_command
from ..pipelines.errors import UsageError
from ..pipelines.flags.arguments import local_copy
from .center_checks import around_center, check_changed_centers
from .claims import Claim, Finding, Setting, read_claim
from .class_center_checks import CENTER_CHECKS, check_center
from .release_function import BlackBox, KeyedRelease, SamplerError, load_sampler
from .sampler_checks import check_channel, check_histogram, check_independence
from .unit_checks import check_units

_DRAWS, _CONFIDENCE = 10**6, 1 - 1e-6
_LEAST_DRAWS, _MOST_DRAWS = 1000, 10**9
_MOST_CHECKS, _MOST_CENTER_CHECKS, _MOST_UNIT_CHECKS = 7, 2, 2


def run(args: argparse.Namespace) -> int:
    """Runs the command and prints the findings.

    Exit code 0 if no attack succeeds, 1 if one does or a file cannot be used, 2 for bad usage.
    """
    if args.truth is not None or args.features:
        # Reads records, and loads Beam for it.
        from .label_attacks import run_label_attack

        return run_label_attack(args)
    passed = True

    def work() -> None:
        nonlocal passed
        passed = _attack(args)

    code = run_command("labeldp attack", work, (ValueError, OSError, MemoryError, SamplerError))
    return code if code != SUCCESS or passed else FAILURE


def _attack(args: argparse.Namespace) -> bool:
    """Prints the findings; tells whether all checks passed."""
    if args.confidence is not None and not 0.5 <= args.confidence < 1:
        raise UsageError(f"--confidence must be at least 0.5 and below 1, not {args.confidence:g}")
    args = _with_defaults(args)
    _check_flags(args)
    if args.within is not None and not 0 <= args.within < float("inf"):
        raise UsageError(f"--within must be finite and not negative, not {args.within:g}")
    local = local_copy(args, args.path)
    if not os.path.exists(local):
        raise UsageError(f"{args.path} does not exist: name a mechanism file or an output folder")
    function = None if args.sampler is None else load_sampler(args.sampler)
    claim = read_claim(local, args.path)
    if claim.center is not None:
        if args.sampler is not None or args.within is not None:
            raise UsageError(
                f"the classes of {args.path} are drawn from a center: leave out --sampler and --within, which are for "
                "labels that are randomized one by one"
            )
        print("labeldp: checking the draws and the noise of the center", file=sys.stderr, flush=True)
        setting = Setting(args.draws, (1 - args.confidence) / CENTER_CHECKS, args.seed)
        return _print_findings(_center_lines(claim, claim.center), check_center(claim, setting))
    randomizer = claim.randomizer
    if args.within is not None and claim.classes is not None:
        raise UsageError("--within is for labels that are numbers: no guess is close to a class. Leave it out")
    function = function or KeyedRelease(randomizer, claim.prior_epsilon, claim.residuals, claim.unit, claim.classes)
    if claim.residuals is None:
        box = BlackBox(function, randomizer.labels, has_units=claim.unit is not None)
        attacked, checks = claim, _MOST_CHECKS
    else:
        box, attacked = around_center(claim, function, claim.residuals)
        checks = _MOST_CHECKS + _MOST_CENTER_CHECKS
    checks += 0 if claim.unit is None else _MOST_UNIT_CHECKS
    setting = Setting(args.draws, (1 - args.confidence) / checks, args.seed)
    lines = [_line("mechanism", _mechanism_text(claim)), _line("sampler", args.sampler or "the keyed path of labeldp")]
    attacks = label_inferences(randomizer, claim.prior, claim.classes is not None)
    if args.within is not None:
        attacks[1:] = [label_inference(randomizer, claim.prior, args.within)]
    lines += [_line("" if place else "advantage", _advantage_text(found)) for place, found in enumerate(attacks)]
    return _print_findings(lines, _findings(box, attacked, claim, setting))


def _print_findings(lines: list[str], findings: Iterable[Finding]) -> bool:
    """Prints lines, findings and the result of all; tells whether all checks passed."""
    failed = []
    for finding in findings:
        lines.append(_line(finding.check, ("" if finding.passed else "FAIL: ") + finding.text))
        if not finding.passed:
            failed.append(finding.check)
    lines.append(f"FAIL: {', '.join(failed)}" if failed else "PASS")
    print("\n".join(lines))
    return not failed


def _with_defaults(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments of an attack on a mechanism, with the values of flags that are not given."""
    draws = _DRAWS if args.draws is None else args.draws
    confidence = _CONFIDENCE if args.confidence is None else args.confidence
    return argparse.Namespace(**{**vars(args), "draws": draws, "confidence": confidence})


def _check_flags(args: argparse.Namespace) -> None:
    if args.path is None:
        raise UsageError(
            "name a mechanism file or an output folder; or give --features, for an input before its release"
        )
    if not _LEAST_DRAWS <= args.draws <= _MOST_DRAWS:
        raise UsageError(f"--draws must be between {_LEAST_DRAWS} and {_MOST_DRAWS}, not {args.draws}")


def _findings(box: BlackBox, attacked: Claim, claim: Claim, setting: Setting) -> Iterator[Finding]:
    parts = [("channel", check_channel), ("histogram", check_histogram)]
    if len(attacked.randomizer.labels) > 1:
        parts.insert(1, ("independence of the noise", check_independence))
        if claim.unit is not None:
            parts.append(("labels of whole units", check_units))
    for name, check in parts:
        print(f"labeldp: checking the {name}", file=sys.stderr, flush=True)
        yield from check(box, attacked, setting)
    if claim.residuals is not None:
        print("labeldp: checking the noise around changed centers", file=sys.stderr, flush=True)
        yield from check_changed_centers(box, claim, setting)


def _line(name: str, text: str) -> str:
    return f"{name:<18} {text}"


def _mechanism_text(claim: Claim) -> str:
    randomizer = claim.randomizer
    delta = f" with delta {claim.delta:.6g}" if claim.delta else ""
    prior = f", {claim.prior_epsilon:.6g} for the histogram" if claim.prior_epsilon else ""
    inputs = "residuals" if claim.residuals is not None else "labels" if claim.classes is None else "classes"
    size = f"{len(randomizer.labels)} {inputs}, {len(randomizer.outputs)} outputs"
    claimed = f"{randomizer.mechanism}: {size}; claims epsilon {claim.epsilon:.6g}{delta} for the labels{prior}"
    if claim.unit is None:
        return claimed
    epsilon, unit_delta = claim.of_unit
    both = round_up(Fraction(epsilon) + claim.unit.total(claim.prior_epsilon))
    delta, most = f" with delta {unit_delta:.6g}" if unit_delta else "", claim.unit.max_records
    return f"{claimed}, of one record; {both:.6g}{delta} for both, of all of at most {most} records of a unit"


def _advantage_text(found: LabelInference) -> str:
    guess = f"a guess within {found.tolerance:g} of the label" if found.tolerance else "an exact guess"
    bound = "" if found.bound is None else f"; at most {found.bound:.4g} at this epsilon"
    success = f"{found.informed:.4g} with the released label, {found.uninformed:.4g} from the prior"
    return f"{found.advantage:.4g} for {guess}: {success}{bound}"


def _center_lines(claim: Claim, center: Center) -> list[str]:
    """Lines on a center of classes: its claims, and bounds on the advantage of a guess."""
    parts = ", ".join(f"{part.epsilon:.6g} for the {part.name}" for part in center.parts)
    claimed = f"{len(claim.classes or ())} classes; claims epsilon {parts}"
    if claim.unit is not None:
        whole, most = claim.unit.total(center.epsilon), claim.unit.max_records
        claimed += f", of one record; {round_up(whole):.6g} for all, of all of at most {most} records of a unit"
    share, epsilon = float(claim.prior.weights.max()), center.epsilon
    bound, of_all = largest_advantage(share, epsilon), largest_advantage_of_all(epsilon)
    guess = f"at most {bound:.4g} for an exact guess, at epsilon {epsilon:.6g}: {share + bound:.4g} with the release, "
    return [
        _line("mechanism", f"{DRAWN_BY_CENTER}: {claimed}"),
        _line("sampler", "the noise and the keyed draws of labeldp"),
        _line("advantage", f"{guess}{share:.4g} from the shares of the classes"),
        _line("", f"at most {of_all:.4g}, whatever is known beside the release"),
    ]
