"""Linear center of one evaluation cell: made as by `labeldp privatize --center linear`, in memory."""

from __future__ import annotations

import json

from ...mechanisms.center.feature_rows import Columns
from ...mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums
from ...mechanisms.noise.keyed_words import keyed_hash, words
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.batches import LabelledBatch, label_values, record_identities
from ...transforms.center.feature_sample import smallest


def simulate_center(
    columns: Columns, batch: LabelledBatch, column: LabelColumn, epsilon: float, secret: bytes
) -> LinearCenter:
    """Makes a linear center for n training records, whose labels are all finite.

    `epsilon` is the total budget of center, prior and labels; `design.epsilon` of the result is the budget that it has
    spent. The secret is the evaluation's key of 32 bytes. Anyone can derive it: the result protects nothing.
    """
    identities = record_identities(batch, None)
    drawn = words(secret, b"center sample", identities)
    sample = smallest(drawn, columns, len(drawn))
    design = design_center(sample.columns, sample.records, epsilon)
    labels = len(column.domain)
    if not design.epsilon:
        return LinearCenter.fit(design, labels, ())
    indices = column.indices(label_values(batch, column.name), identities, secret)
    sums = moment_sums(design.map.rows(columns), indices, labels)
    # The sums determine all else that the noise of a release is bound to.
    noise_key = keyed_hash(secret, b"labeldp center", json.dumps([sums, design.epsilon.hex()]).encode())
    return LinearCenter.fit(design, labels, noised_sums(sums, design.map.norm, labels, design.epsilon, noise_key))
