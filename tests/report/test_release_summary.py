"""Release summary: the labels and the output that attain the largest likelihood ratio."""

from fractions import Fraction

import numpy as np
import pytest
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import solve
from labeldp.report.release_summary import attained_ratio


def test_where_the_ratio_is_attained() -> None:
    randomizer = solve("rr_on_bins", Prior(np.arange(5.0), np.array([5.0, 1, 1, 1, 5])), 1.0)
    ratio = randomizer.certificate().ratio
    assert ratio is not None
    found = attained_ratio(randomizer, ratio)

    place = randomizer.outputs.tolist().index(found.output)
    labels = randomizer.labels.tolist()
    weights = {label: int(weight) for label, weight in zip(labels, randomizer.weights[:, place], strict=True)}
    assert Fraction(weights[found.likely[0]], weights[found.unlikely[0]]) == ratio
    assert weights[found.likely[0]] == weights[found.likely[1]] == max(weights.values())
    assert weights[found.unlikely[0]] == weights[found.unlikely[1]] == min(weights.values())
    with pytest.raises(ValueError, match="no output has this"):
        attained_ratio(randomizer, ratio + 1)
