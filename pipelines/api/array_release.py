"""Release of labels in arrays under a given key, by the plan of every release: for studies, which charge nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...mechanisms.center.feature_rows import Columns
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.noise.keyed_words import RowRange
from ...mechanisms.release.conclude import conclude
from ...mechanisms.release.drawing import Drawing
from ...mechanisms.release.feature_sample import NO_SAMPLE, sample_words, smallest
from ...mechanisms.release.label_records import LabelRecords
from ...mechanisms.release.plan import run_passes
from ..errors import field_errors
from ..spec.feature_choice import CenterChoice
from ..spec.fields import Fields
from ..spec.label import Label, make_label


@dataclass(frozen=True, eq=False)
class ArrayRelease:
    """Labels as a release gives them, with its public facts.

    Attributes:
      outputs: Privatized labels, shape (n,), float64; of classes their places.
      drawing: How they were drawn, for the noised prior; with a center of numbers, by a randomizer of residuals.
      centers: Centers on the label grid, shape (n,), float64, to which the randomizer's outputs were added; None for
        labels without a center.
    """

    outputs: np.ndarray
    drawing: Drawing
    centers: np.ndarray | None = None

    def center_of(self, columns: Columns, given: np.ndarray | None) -> np.ndarray | None:
        """Centers of records as models take them: within the domain, never missing, and not rounded to the label grid.

        Shape (n, 1), or the probabilities of K classes, shape (n, K); None without a center. `given` are the values of
        a center column.
        """
        drawing, domain = self.drawing, np.array(self.drawing.domain)
        if isinstance(drawing.made, LinearCenter):
            return np.interp(drawing.made.positions(columns), np.arange(len(domain)), domain)[:, None]
        if drawing.given_column is None:
            return drawing.centers(lambda _: columns)
        assert given is not None
        # As in a release, where a missing center is the label in the middle.
        middle = domain[(len(domain) - 1) // 2]
        return np.where(np.isfinite(given), np.clip(given, domain[0], domain[-1]), middle)[:, None]


def label_around(fields: Fields, features: Sequence[str], centered: bool) -> Label:
    """The label of a request, with a center of these features, or of a column where it is `centered` otherwise.

    Raises FieldError where `privatize` refuses such a label.
    """
    label, choice = make_label(fields), CenterChoice.of(fields)
    if choice.makes(label):
        label = choice.around(label, tuple(features))
    if not centered:
        return label
    with field_errors("{center_column}: {problem}"):
        column = dataclasses.replace(label.column, center=f"center of {fields.label}")
    return dataclasses.replace(label, column=column)


def release_arrays(
    label: Label, values: np.ndarray, columns: Columns, given: np.ndarray | None, secret: bytes, source: str
) -> ArrayRelease:
    """Privatizes labels, shape (n,), exactly as `labeldp privatize` does those of a file named `source`.

    `columns` are features of the records, and `given` values of a center column. Raises ValueError if the mechanism
    cannot be solved for the prior and the epsilon.
    """
    column, chosen = label.column, label.features
    labels = LabelRecords(column, values, RowRange(source, range(len(values))))
    sample = NO_SAMPLE
    if chosen is not None:
        sample = smallest(sample_words(secret, labels.identities), columns, len(labels), chosen.most)

    def centered(made: object) -> LabelRecords:
        around = None if chosen is not None else given
        if isinstance(made, LinearCenter):
            around = column.labels[made.indices(columns)]
        if around is None or not column.around_center:
            return labels
        centers, missing = column.center_indices(around)
        return dataclasses.replace(labels, centers=centers, missing_centers=missing)

    release = run_passes(
        label.passes, sample, column, secret,
        lambda step, _, released: iter([(centered(released) if step.binds else labels, columns)]),
    )  # fmt: skip
    drawing, drawn = conclude(release, label.mechanism.name, label.mechanism.parameters), centered(release.made)
    probabilities = drawing.probabilities(lambda _: columns)
    outputs = drawing.draw(drawn, release.noise_key(secret), secret, probabilities)
    return ArrayRelease(outputs, drawing, None if drawn.centers is None else column.labels[drawn.centers])
