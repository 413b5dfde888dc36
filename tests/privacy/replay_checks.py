"""Record and replay on neighbors: the exact privacy loss of a release for pairs of inputs that differ in one label.

A release is recorded, and replayed on a neighbor with the noised numbers and the drawn outputs of the record. Whatever
leaves both runs must be equal then, the released labels among it: a difference tells the neighbors apart, whatever the
noise is. For the recorded numbers, the largest loss of the pair is the sum of

- |shift|_1 / scale over the vectors with discrete Laplace noise, and |shift|_1 / (2 scale) with sum-zero noise, where a
  shift is the difference of the raw numbers: the supremum of the log-ratio of probabilities, over all outputs;
- the largest log-ratio of an output in the two rows of each label that differs, by counted words.

The loss is compared with the claims, part by part and as a whole. It holds for the recorded draws of earlier parts, and
given that noise has the distribution of its scale, which a test of the samplers checks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice

import numpy as np
from labeldp.mechanisms.core.randomizer import Randomizer

from tests.privacy.exact_samplers import DRAWS, UnknownSampler, exact_row, largest_log_ratio, noise_fits
from tests.privacy.findings import Finding, Setting
from tests.privacy.noise_recorder import LAPLACE, LabelDraw, NoiseDraw, NoiseRecorder, recorded_noise
from tests.privacy.whole_releases import LABELS, Case, Records, WholeRelease, ledger_folder, part_of

# Log-ratios of counted words are floats, and sums of them; their relative error is below this.
_ROUNDING = 1e-12
# Neighbors of one record.
_NEIGHBORS = 6
# Scales that are tested of each kind of noise.
_SCALES = 4


@dataclass(frozen=True)
class Run:
    """A release and the draws that were made for it."""

    release: WholeRelease
    recorder: NoiseRecorder


@dataclass
class PairLoss:
    """Exact loss of a pair of neighbors, by part of the release, and what tells them apart without any loss.

    Attributes:
      losses: Loss of each part, infinite if an output is possible for one of the two alone.
      claims: Claimed epsilon of each part.
      claim: Claimed epsilon of the whole release.
      problems: Differences that no epsilon covers.
    """

    losses: dict[str, float]
    claims: dict[str, Fraction]
    claim: Fraction
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        """Loss of the whole release."""
        return math.fsum(self.losses.values())

    @property
    def share(self) -> float:
        """The whole loss as a share of its claim."""
        return self.total / float(self.claim)

    def excesses(self) -> list[str]:
        """The release, and parts of it, whose loss is above the claim."""
        found = {part: (loss, self.claims.get(part, Fraction(0))) for part, loss in self.losses.items()}
        found = {"the release": (self.total, self.claim), **found}
        return [
            f"{part} has epsilon {loss:.6g}, claimed {float(claim):.6g}"
            for part, (loss, claim) in found.items()
            if _exceeds(loss, claim)
        ]


def _exceeds(loss: float, claim: Fraction) -> bool:
    return loss > float(claim) * (1 + _ROUNDING)


class Rows:
    """Exact probabilities of the rows of randomizers, each of which is measured once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], list[int]] = {}

    def ratio(self, randomizer: Randomizer, row: int, other: int) -> float:
        """Largest log-ratio of an output in one row to another, in either order."""
        one, two = (self._row(randomizer, place) for place in (row, other))
        return max(largest_log_ratio(one, two), largest_log_ratio(two, one))

    def _row(self, randomizer: Randomizer, row: int) -> list[int]:
        name = randomizer.fingerprint, row
        if name not in self._known:
            # The draw of the class, so that what is sampled is measured, not what is stated.
            self._known[name] = exact_row(Randomizer.draw, randomizer, row)
        return self._known[name]


def check_replays(
    cases: tuple[Case, ...], pairs: int, setting: Setting, progress: Callable[[str], None]
) -> Iterator[Finding]:
    """Replays pairs of neighbors of each kind of release; yields a finding for each kind, then "noise".

    `pairs` is the number of neighbors for each kind, `progress` is told the kind that is attacked next.
    """
    rows = Rows()
    scales: set[tuple[str, int, Fraction]] = set()
    with ledger_folder() as folder:
        for case in cases:
            progress(f"replaying neighbors: {case.name}")
            yield _finding(case, list(_losses(case, pairs, setting, rows, scales, folder)))
    progress("testing the samplers of noise")
    yield _check_noise(scales, setting)


def _losses(
    case: Case, pairs: int, setting: Setting, rows: Rows, scales: set[tuple[str, int, Fraction]], folder: str
) -> Iterator[PairLoss]:
    keys = setting.keys(f"replay {case.name}")
    for number in range(-(-pairs // _NEIGHBORS)):
        rng, key = np.random.default_rng([setting.seed, number]), next(keys)
        base, neighbors = case.pairs(case.make(rng), rng)
        record = _run(case, base, key, folder, None)
        scales |= {(draw.sampler, draw.shape[1], draw.scale) for draw in record.recorder.noise}
        for neighbor in islice(neighbors, min(_NEIGHBORS, pairs - number * _NEIGHBORS)):
            yield pair_loss(record, neighbor, key, folder, rows)


def _run(case: Case, records: Records, key: bytes, folder: str, record: NoiseRecorder | None) -> Run:
    recorder = NoiseRecorder(record)
    with recorded_noise(recorder):
        release = case.release(records, key, folder)
    return Run(release, recorder)


def pair_loss(record: Run, neighbor: Records, key: bytes, folder: str, rows: Rows) -> PairLoss:
    """Replays a recorded release on a neighbor, under the same key, and computes the loss of the pair.

    A replay that fails is a problem: the labels decide whether there is a release. The message of the error is not
    shown.
    """
    release = record.release
    parts: dict[str, Fraction] = {}
    for number in range(len(release.privatizers)):
        for part, epsilon in release.parts(number).items():
            parts[part] = parts.get(part, Fraction(0)) + epsilon
    try:
        replay = _run(release.case, neighbor, key, folder, record.recorder)
    except Exception as error:
        return PairLoss({}, parts, release.claim, [f"the neighbor is not released ({type(error).__name__})"])
    found = PairLoss(_losses_of(record.recorder, replay.recorder, rows), parts, release.claim)
    found.problems = [
        *record.recorder.problems,
        *replay.recorder.problems,
        *_differences(record, replay),
    ]
    return found


def _losses_of(record: NoiseRecorder, replay: NoiseRecorder, rows: Rows) -> dict[str, float]:
    """Losses by part."""
    exact: defaultdict[str, Fraction] = defaultdict(Fraction)
    losses: defaultdict[str, float] = defaultdict(float)
    for one, two in zip(record.noise, replay.noise, strict=False):
        loss = _noise_loss(one, two)
        if loss is None:
            losses[part_of(one.place)] = math.inf
        else:
            exact[part_of(one.place)] += loss
    for one, two in zip(record.labels, replay.labels, strict=False):
        losses[LABELS] += _label_loss(one, two, rows)
    for part, loss in exact.items():
        losses[part] += float(loss)
    return dict(losses)


def _noise_loss(one: NoiseDraw, two: NoiseDraw) -> Fraction | None:
    """Loss of a noised vector; None if it is infinite or not known."""
    if None in one.raw or None in two.raw or (one.shape, one.scale) != (two.shape, two.scale):
        return None
    shifts = [int(b or 0) - int(a or 0) for a, b in zip(one.raw, two.raw, strict=True)]
    size = sum(abs(shift) for shift in shifts)
    if one.sampler == LAPLACE:
        return size / one.scale
    vectors = np.array(shifts, object).reshape(one.shape)
    # Noise of sum 0 hides nothing of a sum.
    return None if vectors.sum(axis=1).any() else size / (2 * one.scale)


def _label_loss(one: LabelDraw, two: LabelDraw, rows: Rows) -> float:
    if one.rows.shape != two.rows.shape:
        return math.inf
    if one.randomizer is None or two.randomizer is None:
        return 0.0 if one.randomizer is two.randomizer and np.array_equal(one.rows, two.rows) else math.inf
    if one.randomizer.fingerprint != two.randomizer.fingerprint:
        return math.inf
    changed = np.flatnonzero(one.rows != two.rows)
    places = zip(one.rows[changed].tolist(), two.rows[changed].tolist(), strict=True)
    try:
        return math.fsum(rows.ratio(one.randomizer, row, other) for row, other in places)
    except UnknownSampler:
        return math.inf


def _differences(record: Run, replay: Run) -> Iterator[str]:
    """Names of released facts and labels that differ, though noised numbers and drawn outputs are equal."""
    facts, others = record.release.facts(), replay.release.facts()
    for name in facts:
        if facts[name] != others.get(name):
            yield f"the {name} tells the labels apart"
    columns = record.release.case.columns
    for column, one, two in zip(columns, record.release.labels, replay.release.labels, strict=True):
        if not np.array_equal(one, two, equal_nan=True):
            yield f"released {column.name} depend on labels beyond the draw"


def _finding(case: Case, found: list[PairLoss]) -> Finding:
    """The finding on a kind of release: its largest loss as a share of the claim, or what contradicts the claims."""
    worst = max(found, key=lambda pair: pair.share)
    problems = list(dict.fromkeys(text for pair in found for text in [*pair.problems, *pair.excesses()]))
    text = f"epsilon {worst.total:.6g} of {float(worst.claim):.6g}, share {worst.share:.4f}; of parts: {_shares(found)}"
    return Finding(f"replay of {case.name}", not problems, "; ".join([*problems[:3], text]), worst.share)


def _shares(found: list[PairLoss]) -> str:
    """The largest loss of each part as a share of its claim."""
    claims = {part: float(epsilon) for part, epsilon in found[0].claims.items() if epsilon}
    largest = {
        part: max(pair.losses.get(part, 0.0) / float(pair.claims[part] or 1) for pair in found) for part in claims
    }
    return ", ".join(f"{part} {share:.4f}" for part, share in largest.items())


def _check_noise(scales: set[tuple[str, int, Fraction]], setting: Setting) -> Finding:
    """Tests some scales of each kind of noise, the least and the largest among them."""
    kinds: defaultdict[tuple[str, int], list[Fraction]] = defaultdict(list)
    for sampler, classes, scale in sorted(scales):
        kinds[sampler, 1 if sampler == LAPLACE else classes].append(scale)
    tested = []
    for (sampler, classes), each in kinds.items():
        ordered = sorted(set(each))
        places = np.unique(np.linspace(0, len(ordered) - 1, _SCALES).round().astype(int))
        tested += [(sampler, classes, ordered[place]) for place in places.tolist()]
    keys = setting.keys("noise")
    alpha = setting.alpha / max(len(tested), 1)
    wrong = [each for each in tested if not noise_fits(*_named(each), next(keys), alpha)]
    about = f"{len(tested)} scales, {DRAWS:,} draws of each"
    if wrong:
        sampler, _, scale = wrong[0]
        return Finding("noise", False, f"{sampler} noise is not that of scale {float(scale):.6g}; {about}")
    return Finding("noise", True, f"has the distribution of its scale; {about}")


def _named(each: tuple[str, int, Fraction]) -> tuple[str, Fraction, int]:
    sampler, classes, scale = each
    return sampler, scale, classes
