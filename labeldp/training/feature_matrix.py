"""Features of frames as matrices for models: encoded alike for ridges and kernels, and as they are for trees.

Encoders are those of a linear center: numbers are standardized and clipped to four standard deviations, a missing one
is the mean, and a category has an indicator for each value, or for each place that its values are hashed to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..mechanisms.analysis.explained import EstimatedLabels, explained_share
from ..mechanisms.center.feature_rows import FEATURE_UNIT, Categories, Columns, Number, RowMap, encoders_of
from ..mechanisms.release.feature_sample import identifying
from ..pipelines.api.feature_frames import FeatureFrame, read_frame
from ..transforms.center.feature_columns import center_columns, feature_columns, is_feature
from .intervals import Estimate

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike

    from ..pipelines.api.feature_frames import Frame

# Values of a category with an indicator of their own, fewer where all features together would have too many columns.
_PLACES, _MOST_WIDTH = 32, 512
# Trees, whose leaves have many records, have no indicator of rarer values.
_LEAST_SHARE = 0.01
# Standard errors that the variance of the labels is above 0, where shares of it are stated.
_REACH = 2
# Records that encoders are chosen from.
_SAMPLE = 1 << 16


class ReleasedLabels(Protocol):
    """Parts of a `labeldp.training.Release` that models are made from."""

    @property
    def label(self) -> str | None:
        """Name of the label column."""
        ...

    @property
    def center(self) -> str | None:
        """Name of the center column."""
        ...

    @property
    def domain(self) -> np.ndarray:
        """Labels of the domain, ascending."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes; None for numbers."""
        ...

    def values_of(self, column: pa.Array) -> ArrayLike:
        """Released labels of an Arrow column."""
        ...

    @property
    def center_features(self) -> tuple[str, ...] | None:
        """Names of the features of the linear center."""
        ...

    def estimates(self, z: ArrayLike, center: ArrayLike | None) -> EstimatedLabels:
        """Estimates of the true labels."""
        ...

    def targets(self, z: ArrayLike, center: ArrayLike | None) -> np.ndarray:
        """Labels to train on, with less noise than these estimates."""
        ...

    def predict_center(self, X: Frame) -> np.ndarray:
        """The center of records, not rounded."""
        ...


def labels_of(
    release: ReleasedLabels, X: Frame | None, z: ArrayLike | None, center: ArrayLike | None
) -> tuple[ArrayLike, ArrayLike | None]:
    """Looks up labels and center in the columns of X, where they are not given.

    The center is predicted if X has its features alone. Raises ValueError if there are no labels.
    """
    frame = None if X is None else read_frame(X, "X")
    if z is None:
        column = None if frame is None or release.label is None else frame.column(release.label)
        if column is None:
            raise ValueError(f"z is missing: pass the released labels, or X with their column {release.label!r}")
        z = release.values_of(column)
    if center is None and release.center is not None and frame is not None:
        column = frame.column(release.center)
        if column is not None:
            center = column.to_numpy(zero_copy_only=False)
        elif {*(release.center_features or ("",))} <= {*frame.names}:
            center = release.predict_center(frame)
    return z, center


def stated_share(estimates: EstimatedLabels, labels: np.ndarray, predictions: np.ndarray) -> Estimate | None:
    """Share of the variance of the true labels that predictions of some records explain; None if noise hides it.

    Two of its standard errors hold the largest covariance of predictions with the bias of the estimates.
    """
    variance = estimates.variance
    if not variance.value > _REACH * variance.error:
        return None
    share = explained_share(labels, predictions, variance)
    bias = estimates.bias * float(predictions.std()) / variance.value
    return Estimate(share.value, float(np.hypot(share.error, bias)))


def frame_of(X: Frame, without: tuple[str | None, ...] = ()) -> FeatureFrame:
    """Reads features without some columns. Raises ValueError or TypeError if they are no frame of features."""
    frame = read_frame(X, "X")
    return FeatureFrame(frame.batch.select([name for name in frame.names if name not in without]), "X")


def columns_of(frame: FeatureFrame) -> Columns:
    """Features of a frame that are numbers or texts, and no ids. Raises ValueError if there are none."""
    found = feature_columns(frame, [each.name for each in frame.batch.schema if is_feature(each.type)])
    ids = identifying(found)
    kept = {name: column for name, column in found.items() if name not in ids}
    if not kept:
        raise ValueError("X has no column of numbers or texts besides label, center and ids")
    return kept


class FeatureMatrix:
    """Encoders of features, chosen from the records that a model is trained on, without their labels."""

    def __init__(self, columns: Columns):
        """Chooses encoders. Raises ValueError if no feature tells records apart."""
        step = -(-len(next(iter(columns.values()))) // _SAMPLE)
        sample = {
            name: Categories(column.codes[::step], column.values) if isinstance(column, Categories) else column[::step]
            for name, column in columns.items()
        }
        places = _PLACES
        encoders = encoders_of(sample, places)
        while sum(each.width for each in encoders) > _MOST_WIDTH and places > 2:
            places //= 2
            encoders = encoders_of(sample, places)
        if not encoders:
            raise ValueError("no column of X tells records apart: each has one value only")
        self._encoders = encoders
        # Only names and types of the features are read from it.
        self._map = RowMap(encoders, np.zeros((sum(each.width for each in encoders), 0), np.int64), FEATURE_UNIT)

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return self._map.columns

    def __call__(self, frame: FeatureFrame) -> tuple[np.ndarray, np.ndarray]:
        """Maps n records to encoded features, shape (n, w), and to those of trees, shape (n, v), NaN if missing.

        Raises ValueError, which names a feature, if one is missing or of another type.
        """
        frame.check(self._map)
        columns = center_columns(frame, self._map)
        encoded, raw = [], []
        for each in self._encoders:
            column = columns[each.name]
            if isinstance(each, Number):
                numbers = np.asarray(column, np.float64)
                encoded.append(each.encode(numbers)[:, None] / FEATURE_UNIT)
                # Trees need the order alone; float32 of LightGBM and XGBoost keeps that of standardized numbers better.
                raw.append(np.where(np.isfinite(numbers), (numbers - each.mean) / each.spread, np.nan)[:, None])
            else:
                encoded.append(each.steps(np.eye(each.width))[each.places(column)] / FEATURE_UNIT)
                often = [place for place, share in enumerate(each.shares) if share >= _LEAST_SHARE]
                raw.append((each.places(column)[:, None] == np.array(often, np.int64)).astype(np.float64))
        return np.concatenate(encoded, axis=1), np.concatenate(raw, axis=1)
