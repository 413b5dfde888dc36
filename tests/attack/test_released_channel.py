"""Likelihoods of released labels: those of the sampler that drew them, with and without centers."""

from typing import Any

import numpy as np
import pytest
from labeldp.attack.released_channel import ReleasedChannel, ReleasedLabels
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.noise.keyed_words import integer_identities
from labeldp.mechanisms.registry import mechanism_named
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.label_records import LabelRecords
from labeldp.transforms.errors import InputError

from tests.privacy.sampling_bounds import misfits

DOMAIN = np.arange(9.0)
DRAWS = 100_000
ALPHA = 1e-9 / 6
"""False alarms of all cases below together: 1e-9."""


def randomizer_of(labels: np.ndarray, epsilon: float = 1.0, **parameters: Any) -> Any:
    return mechanism_named("unbiased", **parameters).solve(Prior(labels, np.ones(len(labels))), epsilon)


def drawn(column: LabelColumn, randomizer: Any, label: int, center: int) -> np.ndarray:
    """Released labels of one label of the domain around one center, many times."""
    identities = integer_identities("id", np.arange(DRAWS))
    centers = None if column.center is None else np.full(DRAWS, center)
    records = LabelRecords(column, np.full(DRAWS, DOMAIN[label]), identities, centers)
    return drawing_of(randomizer, records.column).draw(records, b"n" * 32, b"s" * 32)


@pytest.mark.parametrize(("label", "center"), [(0, None), (5, None), (4, 3), (8, 0)])
def test_likelihoods_are_those_of_the_sampler(label: int, center: int | None) -> None:
    if center is None:
        column, randomizer = LabelColumn("y", tuple(DOMAIN)), randomizer_of(DOMAIN)
    else:
        column = LabelColumn("y", tuple(DOMAIN), center="c")
        # Residuals of -2 to 3: others are clipped.
        residuals = ResidualDomain(DOMAIN)
        randomizer = randomizer_of(residuals.grid[6:12])
    released = drawn(column, randomizer, label, center or 0)
    centers = None if center is None else np.full(DRAWS, float(center))
    check(ReleasedChannel(randomizer, ReleasedLabels(released, centers), column), released, label)


def check(channel: ReleasedChannel, released: np.ndarray, label: int) -> None:
    """Compares how often each label was released with the likelihood of the true one, by exact binomial tests."""
    values, first, counts = np.unique(released, return_index=True, return_counts=True)
    chances = channel.likelihood(first)[:, label]
    assert len(values) > 1
    # An output that was not drawn has the rest.
    rest = max(1 - chances.sum(), 0.0)
    assert rest < 30 / DRAWS
    assert not len(misfits(np.append(counts, 0)[None], np.append(chances, rest)[None], ALPHA))


def test_a_label_that_is_no_output_is_refused() -> None:
    randomizer = randomizer_of(DOMAIN)
    released = np.append(randomizer.outputs[:1], 0.123456)
    with pytest.raises(InputError, match=r"^record 1 of the release .* no output .* labeldp audit --data$"):
        ReleasedChannel(randomizer, ReleasedLabels(released), LabelColumn("y", tuple(DOMAIN)))


def test_float32_labels_are_outputs() -> None:
    randomizer = randomizer_of(DOMAIN)
    released = randomizer.outputs.astype(np.float32).astype(float)
    channel = ReleasedChannel(randomizer, ReleasedLabels(released), LabelColumn("y", tuple(DOMAIN)))
    np.testing.assert_array_equal(channel.likelihood(np.arange(len(released))), randomizer.probabilities().T)
