"""Release as those who train on it see it: its label, its channel, and what follows from them for released labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .candidates import KINDS
from .class_arrays import class_probabilities, numbers, read_places
from .intervals import Estimate

if TYPE_CHECKING:
    import pyarrow as pa
    from labeldp import CenterModel, LabelColumn, LabelPrivatizer
    from numpy.typing import ArrayLike

    from ..mechanisms.analysis.channel import Channel
    from ..mechanisms.analysis.explained import EstimatedLabels, NoisedHistogram
    from ..pipelines.api.feature_frames import Frame
    from ..pipelines.publish.released import Released
    from .release_models import ReleaseClassifier, ReleaseRegressor

# Relative to the range of the outputs and to the largest label: labels of TFRecords are float32.
_OUTPUT_TOLERANCE, _FLOAT32 = 1e-6, 2.0**-22
# The inverse of a channel with a larger condition would consist of rounding errors.
_LARGEST_CONDITION = 1e9

NO_CENTER = "the labels of this release have no center: leave out center"


@dataclass(frozen=True, eq=False)
class Release:
    """Public facts of a release of one label, numbers or classes.

    Numbers. Labels are those of the domain: a label beyond it was clamped to its end, one between two labels was
    rounded to one of them. Around a center the randomizer takes the residual, the label minus its center, clipped to
    the range of its labels. So everything here is about rounded and clipped labels. `clipped` is the share of clipped
    residuals, under the noised histogram.

    Classes. Labels and outputs are the places 0.0, 1.0, ..., K - 1 of the classes in `classes`, whose distances mean
    nothing. A value that is not listed counted as the other class. `debiased` gives targets, one for each class.

    Attributes:
      label: Name of the label column; None if it is not stated.
      center: Name of the center column; None for labels without a center.
      domain: Labels of the domain, shape (K,), float64, ascending.
      channel: Labels of the randomizer (residuals around a center), its outputs, their probabilities, and the prior.
      mechanism: Name of the mechanism.
      epsilon: Certified epsilon of the labels, without those of center and histogram.
      line: Intercept a and slope b of the debiasing line, in units of the label and without unit; (0, 1) for labels
        that need none; None if there is no line, and for classes.
      unbiased: Whether the randomizer has no bias beyond the rounding of its weights; False for classes.
      clipped: Share of the residuals that are clipped, in [0, 1]; 0 without a center.
      records: Number of released records; None if it is not stated.
      classes: Names of the K classes as text, in the order of their places; None for numbers.
      model: The linear center, which predicts labels from features; None without one, and for classes.
      histogram: Noised histogram of the labels, or of the residuals around a center; None for a public prior.
    """

    label: str | None
    center: str | None
    domain: np.ndarray = field(repr=False)
    channel: Channel = field(repr=False)
    mechanism: str
    epsilon: float
    line: tuple[float, float] | None
    unbiased: bool
    clipped: float = 0.0
    records: int | None = None
    classes: tuple[str, ...] | None = None
    model: CenterModel | None = field(default=None, repr=False)
    histogram: NoisedHistogram | None = field(default=None, repr=False)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Release:
        """Reads release.json and mechanism.json of a release and checks them; shards are not read.

        The certificate of the randomizer is computed again from its integers. `labeldp audit` checks more.

        Args:
          folder: Output folder of a release of one label, or the folder of one of several labels below it.

        Returns:
          The release.

        Raises:
          InputError: If a file is missing, is not one of a release, or they do not belong together.
        """
        from labeldp import InputError

        from ..pipelines.publish.released import Released

        released = Released.open(folder)
        problems = released.contradictions()
        if problems:
            raise InputError(
                f"{released.name}: {problems[0]}: the files do not belong to one release; run labeldp audit"
            )
        return cls._of(released, released.label, released.stated.records)

    @classmethod
    def from_privatizer(cls, privatizer: LabelPrivatizer) -> Release:
        """Takes the latest release of a `LabelPrivatizer`.

        Args:
          privatizer: A fitted privatizer.

        Returns:
          The release.

        Raises:
          NotFittedError: If there is no mechanism yet.
        """
        from ..pipelines.publish.released import Released

        return cls._of(Released("the release", privatizer.mechanism_), privatizer.label, privatizer.records_)

    @classmethod
    def _of(cls, released: Released, label: str | None, records: int | None) -> Release:
        """Computes what follows from a checked mechanism file."""
        from labeldp import CenterModel

        mechanism, drawing, classes = released.mechanism, released.mechanism.drawing, released.classes
        if not drawing.solved:
            raise ValueError(
                "the classes of this release were drawn from probabilities, and say nothing beside them: train on the "
                f"column {drawing.column!r} (labeldp.training.soft_rows), which needs no correction"
            )
        channel, line = released.channel
        certified = float(mechanism.labels_certified[0])
        facts = np.array(mechanism.domain), channel, drawing.name, certified
        if classes:
            return ClassRelease(label, None, *facts, None, False, 0.0, records, classes.values)
        model = drawing.model if isinstance(drawing.model, CenterModel) else None
        more = line == (0.0, 1.0), drawing.clipping.share, records, None, model, drawing.histogram
        return cls(label, drawing.column, *facts, line, *more)

    def fit(
        self,
        X: Frame,
        z: ArrayLike | None = None,
        center: ArrayLike | None = None,
        *,
        kinds: Sequence[str] = KINDS,
        library: str = "sklearn",
    ) -> ReleaseRegressor | ReleaseClassifier:
        """Trains the model that predicts true labels best, as far as released ones tell.

        It is a weighted mean of ridges, kernel ridges (up to 20,000 records), six sets of boosted trees and the center
        alone. Weights follow from the held-out error on the released labels: the best model has nearly all if noise is
        small, and shares it with others that cannot be told from it if noise is large. Where X has the features of the
        center, it starts from the center, which is inside; otherwise from the mean. The same arguments give the same
        model. Up to 100,000 records are predicted five-fold.

        Args:
          X: Features of n records, in the order of the labels: a pandas or polars DataFrame, an Arrow table, a dict of
            columns, or an array of shape (n, m). Numbers and texts are features; ids are not, in which nearly all
            values differ.
          z: Released labels, shape (n,); None if they are the column `label` of X.
          center: Center of each record, as released; None without one, or if X has it or its features.
          kinds: Kinds of models, some of `ridge`, `kernel` and `trees`.
          library: Library of the trees, `sklearn`, `lightgbm` or `xgboost`.

        Returns:
          A regressor or classifier of scikit-learn, with `explained_`, the share of the variance of the true labels
          that it explains and its standard error, and `line_`, a sentence on it.

        Raises:
          ValueError: If an argument is wrong, or there are fewer than 20 records.
          UsageError: If scikit-learn or the library is not installed.
        """
        from ..pipelines.spec.machine import check_extra

        check_extra("release.fit", "evaluation", "sklearn")
        return self._model(kinds, library).fit(X, z, center)

    def _model(self, kinds: Sequence[str], library: str) -> ReleaseRegressor | ReleaseClassifier:
        from .release_models import ReleaseRegressor

        return ReleaseRegressor(self, kinds, library)

    def trees(
        self, X: Frame, z: ArrayLike | None = None, center: ArrayLike | None = None, *, library: str = "sklearn"
    ) -> ReleaseRegressor | ReleaseClassifier:
        """Trains boosted trees that start from the center: `fit` with `kinds=["trees"]`; arguments as there."""
        return self.fit(X, z, center, kinds=("trees",), library=library)

    def explained(
        self,
        X: Frame | None = None,
        z: ArrayLike | None = None,
        center: ArrayLike | None = None,
        *,
        predictions: ArrayLike | None = None,
    ) -> Estimate:
        """Estimates the share of the variance of the true labels that features, or given predictions, explain.

        Features: that of a cross-validated ridge around the center, the figure of the verdict for features of your own;
        `fit` may explain more. It needs no scikit-learn.

        Args:
          X: Features, as for `fit`; with predictions None, or a frame with labels and center.
          z: Released labels, as for `fit`.
          center: As for `fit`.
          predictions: Predictions of a model that has not seen these labels, shape (n,), in units of the label; of
            classes their probabilities, as for `estimate`.

        Returns:
          The share with its standard error; noise may take it below 0. That of given predictions is wider by the
          bias that the mechanism leaves.

        Raises:
          ValueError: If an argument is wrong, or the variance of the labels cannot be told from 0.
        """
        from ..mechanisms.analysis.explained import measure
        from .feature_matrix import columns_of, frame_of, labels_of, stated_share

        z, center = labels_of(self, X, z, center)
        estimates = self.estimates(z, center)
        if predictions is None:
            measured = measure(estimates, columns_of(frame_of(X, (self.label, self.center))))
            share = None if measured is None else Estimate(*measured.share[:2])
        else:
            share = stated_share(estimates, estimates.labels, self._predictions(predictions, len(estimates.labels)))
        if share is None:
            raise ValueError("what is explained cannot be told: there are fewer than ten records, or labels all alike")
        return share

    def _predictions(self, given: ArrayLike, records: int) -> np.ndarray:
        return numbers(given, "predictions", (records,))

    def values_of(self, column: pa.Array) -> ArrayLike:
        """Released labels of an Arrow column, as `places` takes them."""
        return column.to_numpy(zero_copy_only=False)

    def of_classes(self, hint: str) -> ClassRelease:
        """The release, if its labels are classes. Raises ValueError, which ends with the hint, if they are numbers."""
        raise ValueError(f"the labels of this release are numbers{hint}")

    def estimates(self, z: ArrayLike, center: ArrayLike | None = None) -> EstimatedLabels:
        """Estimates true labels, or indicators of classes, and their variance; arguments as for `debiased`.

        They are without bias where the mechanism allows, and corrected for clipping on average.
        """
        from ..mechanisms.analysis.explained import estimated_labels

        places, around = self.places(z, center)
        given = None if self.center is None else around
        return estimated_labels(self.channel, self.line, places, given, self.histogram)

    def targets(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Labels to train on, shape (n,), or estimates of the indicators of classes, shape (n, K).

        They have the least noise: bias is removed by a line for the labels that are not clipped. What clipping took off
        is left out, which shortens models towards the center a little; its correction has several times the noise.
        Arguments as for `debiased`.
        """
        places, around = self.places(z, center)
        drawn, line = self.channel.outputs[places], self.channel.line
        if self.unbiased or line is None:
            return around + drawn
        return around + (drawn - line[0]) / line[1]

    @property
    def center_features(self) -> tuple[str, ...] | None:
        """Names of the features of the linear center; None without one."""
        return None if self.model is None else self.model.features

    def predict_center(self, X: Frame) -> np.ndarray:
        """Predicts the linear center of records, those of the release or new ones, without rounding it to the domain.

        The center column of the release is rounded. Models around the center are better for new records if it is not.

        Args:
          X: Features with the columns of the log, a frame as for `fit`.

        Returns:
          Shape (n,), float64, in units of the label.

        Raises:
          ValueError: If there is no linear center, or a feature is missing or has the wrong type.
        """
        from ..pipelines.api.feature_frames import read_frame
        from ..transforms.center.feature_columns import center_columns

        if self.model is None:
            raise ValueError("this release has no linear center")
        frame, map = read_frame(X, "X"), self.model.linear.map
        frame.check(map)
        return self.domain[0] + self._step * self.model.linear.positions(center_columns(frame, map))

    @property
    def noise(self) -> float:
        """Mean variance of a debiased label given the true one, under the prior, in squared units of the label.

        Of classes, it is the sum of the variances of the K targets, without unit. Raises ValueError if there are none.
        """
        return float(self.channel.prior @ self._variances)

    def debiased(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Removes the bias of released labels by the line that `LabelPrivatizer.debias` uses: c + (z - c - a) / b.

        c is the center, 0 without one. If `unbiased`, the labels are returned as they are: E[z] = y for every label y,
        up to clipping. Otherwise the line is right on average under the prior, and for every label only if the mean
        output is a linear function of the label, as with `rr`.

        Of classes, the targets of a record are the row of the inverse of the channel for its released class z: with
        E[target of c | y] = 1 if c = y, else 0, whatever the prior is. They take the place of the indicators of the
        classes in whatever is linear in them, such as shares, the squared loss and the cross entropy.

        Args:
          z: Released labels, shape (n,); classes as released, in any type that `places` takes.
          center: Center of each record, shape (n,), as released, if there is one.

        Returns:
          Debiased labels, shape (n,), float64, in units of the label; they may lie outside the domain. Of classes, the
          targets, shape (n, K), float64, columns as in `classes`; they add up to 1, and some are below 0.

        Raises:
          ValueError: If there is no line, or no inverse of the channel, shapes differ, a label or center is missing, or
            there is one too many.
        """
        z, around = self._read(z, center)
        if self.unbiased:
            return z
        intercept, slope = self._line()
        return around + (z - around - intercept) / slope

    def likelihood(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Computes P(z | y) of each record for each label y of the domain.

        Around a center c it is the probability of the output z - c for the residual y - c, clipped to the range of the
        randomizer. Columns of classes are in the order of `classes`. The array takes 8 n K bytes; pass parts of the
        records if that is too much.

        Args:
          z: Released labels, shape (n,).
          center: Center of each record, shape (n,), as released, if there is one.

        Returns:
          Shape (n, K), float64, probabilities in [0, 1].

        Raises:
          ValueError: If a value is no output of the mechanism, shapes differ, or a label or center is missing or one
            too many.
        """
        places, around = self.places(z, center)
        columns = self.channel.probabilities.T
        if self.center is None:
            return columns[places]
        size, step = len(self.domain), self._step
        first = round(float(self.channel.labels[0]) / step)
        steps = np.arange(size)[None, :] - np.rint((around - self.domain[0]) / step).astype(np.intp)[:, None]
        return columns[places[:, None], np.clip(steps - first, 0, len(self.channel.labels) - 1)]

    def noise_variance(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Expected variance of each debiased label given what was released: E[Var(debiased | y) | z] under the prior.

        The variance of a record depends on its true label, which is unknown; this is its posterior mean. Do not weight
        the records of one release by it: a function of z is correlated with the noise of z, and biases what is learned.

        Args:
          z: Released labels, shape (n,).
          center: Center of each record, shape (n,), as released, if there is one.

        Returns:
          Shape (n,), float64, in squared units of the label.

        Raises:
          ValueError: As for `likelihood`, or if there is no debiasing line, or no inverse of the channel.
        """
        return (self.channel.posterior @ self._variances)[self.places(z, center)[0]]

    def places(self, z: ArrayLike, center: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Finds the outputs that were drawn.

        Classes may be text, bytes, integers, booleans or floats, as the input's column had them: a numpy array, a list,
        a pandas or polars Series or an Arrow array. For the place of each class in `classes` see `class_places`.

        Args:
          z: Released labels, shape (n,).
          center: Center of each record, shape (n,), as released, if there is one.

        Returns:
          Places in `channel.outputs`, shape (n,), integers, and the centers, labels of the domain, shape (n,); 0
          without a center.

        Raises:
          ValueError: If a value is no output of the mechanism, shapes differ, or a label or center is missing or one
            too many.
        """
        z, around = self._read(z, center)
        outputs = self.channel.outputs
        drawn = z - around
        places = np.searchsorted((outputs[1:] + outputs[:-1]) / 2, drawn)
        largest = float(np.abs(z).max(initial=0.0)) + float(np.abs(outputs).max())
        tolerance = _OUTPUT_TOLERANCE * float(np.ptp(outputs)) + _FLOAT32 * largest
        wrong = np.abs(outputs[places] - drawn) > tolerance
        if wrong.any():
            what = "" if self.center is None else " around its center"
            raise ValueError(
                f"row {int(wrong.argmax())} of z is no output of the mechanism{what}: pass the labels as they were "
                "released, not debiased or rounded"
            )
        return places, around

    def class_places(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Finds the place of each released class in `classes`, which are the labels 0, 1, ... to train on.

        Args:
          z: Released classes, shape (n,), of a type that `places` takes.
          center: None: classes have no center.

        Returns:
          Shape (n,), integers from 0 to K - 1.

        Raises:
          ValueError: If the labels are numbers, a row is missing or none of the classes, or there is a center.
        """
        return self.of_classes(", without classes").class_places(z, center)

    def outputs_of(self, places: np.ndarray) -> np.ndarray:
        """Finds the outputs that are the classes of some places, shape (n,).

        Args:
          places: Places of classes, shape (n,), of any type of numbers.

        Returns:
          Places in `channel.outputs`, shape (n,), integers.

        Raises:
          ValueError: If a place is none of a class, or the mechanism never releases it.
        """
        return self.of_classes(", without classes").outputs_of(places)

    @property
    def inverse(self) -> np.ndarray:
        """Targets of the classes for each output, shape (K, K), float64: the inverse of the channel.

        Raises ValueError for numbers, and if a function of the released class cannot tell all classes apart, as with
        `rr_top_k` where it releases fewer classes.
        """
        return self.of_classes(", without classes").inverse

    @cached_property
    def _variances(self) -> np.ndarray:
        slope = 1.0 if self.unbiased else self._line()[1]
        outputs = self.channel.outputs / slope
        return self.channel.covariance(outputs, outputs)

    @property
    def _step(self) -> float:
        return float(self.domain[-1] - self.domain[0]) / (len(self.domain) - 1)

    def _line(self) -> tuple[float, float]:
        if self.line is None:
            raise ValueError("the labels cannot be debiased: the mean released label does not rise with the true one")
        return self.line

    def _read(self, z: ArrayLike, center: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
        """Released labels, and centers rounded as the release did."""
        z = numbers(z, "z")
        if self.center is None:
            if center is not None:
                raise ValueError(NO_CENTER)
            return z, np.zeros(len(z))
        if center is None:
            raise ValueError(f"center is missing: pass the column {self.center!r} of the release")
        centers = np.asarray(center, np.float64)
        if centers.shape != z.shape:
            raise ValueError(f"center has shape {centers.shape}, not {z.shape} as z")
        return z, self.domain[self._column.center_indices(centers)[0]]

    @cached_property
    def _column(self) -> LabelColumn:
        from labeldp import LabelColumn

        return LabelColumn(self.label or "label", tuple(self.domain.tolist()), center=f"center of {self.label}")


@dataclass(frozen=True, eq=False)
class ClassRelease(Release):
    """Public facts of a release of classes, which have places in place of numbers, and no center."""

    def _model(self, kinds: Sequence[str], library: str) -> ReleaseRegressor | ReleaseClassifier:
        from .release_models import ReleaseClassifier

        return ReleaseClassifier(self, kinds, library)

    def _predictions(self, given: ArrayLike, records: int) -> np.ndarray:
        return class_probabilities(given, records, len(self.domain), "predictions")

    def values_of(self, column: pa.Array) -> ArrayLike:
        """Released classes of an Arrow column, as `places` takes them."""
        return column.to_pylist()

    def of_classes(self, hint: str) -> ClassRelease:
        """The release."""
        return self

    def estimates(self, z: ArrayLike, center: ArrayLike | None = None) -> EstimatedLabels:
        """Estimates indicators of classes and their variance; arguments as for `debiased`."""
        from ..mechanisms.analysis.explained import estimated_classes

        return estimated_classes(self.channel, self.places(z, center)[0])

    def targets(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Estimates of the indicators of classes, shape (n, K). Arguments as for `debiased`."""
        return self.estimates(z, center).labels

    def debiased(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Rows of the inverse of the channel for the released classes; see `Release.debiased`."""
        return self.inverse[self.places(z, center)[0]]

    def places(self, z: ArrayLike, center: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Finds the outputs that were drawn; see `Release.places`."""
        outputs = self.outputs_of(self.class_places(z, center))
        return outputs, np.zeros(len(outputs))

    def class_places(self, z: ArrayLike, center: ArrayLike | None = None) -> np.ndarray:
        """Finds the place of each released class; see `Release.class_places`."""
        if center is not None:
            raise ValueError(NO_CENTER)
        return read_places(z, self.place_of, "z")

    def outputs_of(self, places: np.ndarray) -> np.ndarray:
        """Finds the outputs that are the classes of some places; see `Release.outputs_of`."""
        rows = np.rint(places).astype(np.intp)
        listed = (rows == places) & (rows >= 0) & (rows < len(self.domain))
        found = self._output_of_class[np.where(listed, rows, 0)]
        wrong = ~listed | (found < 0)
        if wrong.any():
            what = "a class that the mechanism never releases" if listed[wrong.argmax()] else "no place of a class"
            raise ValueError(f"row {int(wrong.argmax())} of z is {what}: pass the labels as they were released")
        return found

    @cached_property
    def inverse(self) -> np.ndarray:
        """Targets of the classes for each output; see `Release.inverse`."""
        chances = self.channel.probabilities
        if chances.shape[0] != chances.shape[1] or np.linalg.cond(chances) > _LARGEST_CONDITION:
            raise ValueError(
                f"mechanism {self.mechanism}, of epsilon {self.epsilon:.3g}, releases {chances.shape[1]} of "
                f"{chances.shape[0]} classes: no function of them is right for every class. Release with --mechanism "
                "rr, or use the likelihood, which needs no inverse"
            )
        return np.linalg.inv(chances)

    @cached_property
    def place_of(self) -> dict[Any, int]:
        """Place of each class by its value, in each of the types that a column of it may have."""
        from labeldp import LabelClasses

        listed = LabelClasses(self.classes or ())
        kinds = (listed.values, [text.encode() for text in listed.values], listed.booleans or (), listed.integers or ())
        return {value: place for values in kinds for place, value in enumerate(values)}

    @cached_property
    def _output_of_class(self) -> np.ndarray:
        """Place of each class in the outputs, shape (K,); -1 for one that is never released."""
        found = np.full(len(self.domain), -1)
        found[self.channel.outputs.astype(int)] = np.arange(len(self.channel.outputs))
        return found

    @cached_property
    def _variances(self) -> np.ndarray:
        return np.sum([self.channel.covariance(column, column) for column in self.inverse.T], axis=0)
