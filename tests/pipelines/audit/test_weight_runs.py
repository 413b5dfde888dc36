"""The divergence of run-length encoded weights."""

import random
from decimal import Decimal
from fractions import Fraction

import pytest
from labeldp.pipelines.audit.audit_mechanism import audit_mechanism


@pytest.mark.parametrize("seed", range(20))
def test_delta_agrees_with_every_pair_of_labels(valid_mechanism, random_row, seed):
    rng = random.Random(seed)
    k, m, bits = rng.randint(1, 6), rng.randint(2, 6), 62
    rows = [random_row(rng, m, bits) for _ in range(k)]
    document = valid_mechanism(rows, [float(y) for y in range(k)], [float(c) for c in range(m)], bits)
    epsilon = rng.choice([0.0, 0.1, 1.0, 5.0])
    factor = Fraction(Decimal(epsilon).exp())
    true = max(
        sum(max(Fraction(0), p - factor * q) for p, q in zip(first, second, strict=True)) / 2**bits
        for first in rows
        for second in rows
    )
    document.update({"epsilon": epsilon, "delta": 0.999})
    document["certificate"] |= {"epsilon": epsilon, "delta": min(float(true) * (1 + 1e-12), 0.999)}
    audit = audit_mechanism(document)
    assert audit.problems == ()
    assert audit.delta == pytest.approx(float(true), rel=1e-12, abs=1e-25)
