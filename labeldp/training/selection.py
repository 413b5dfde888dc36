"""Early stopping and choice of models by metrics that are corrected for the noise of released labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .class_arrays import score_probabilities
from .estimates import compared_metric, estimate
from .objectives import check_library
from .release import ClassRelease, Release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Stage(NamedTuple):
    """Chosen stage of a boosted model, or one of several models.

    Attributes:
      index: Its place among those given, from 0.
      value: Its corrected metric.
      standard_error: Standard error of that metric. Differences to other stages are far more accurate: `compare`.
    """

    index: int
    value: float
    standard_error: float


def early_stopping(
    predictions: Iterable[ArrayLike],
    z: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None = None,
    metric: str | None = None,
    clipping: str = "ends",
    exact: bool = True,
) -> Stage:
    """Finds the stage with the least corrected metric, on records that no stage was trained on.

    By the mean squared error on unbiased labels without a center it is the stage that the error on the released labels
    would choose, since both differ by a constant. With labels that only a line makes unbiased, and for the mean
    absolute error, the error on the released labels chooses others. The metric of the chosen stage is too good, as the
    least of several.

    Of classes the default is the forward loss, the negative log likelihood of what was released: it has much less noise
    than an estimated log loss, and chooses the same model of calibrated ones.

    Args:
      predictions: Predictions of each stage, shape (n,), such as those of `staged_predict` of scikit-learn, or of each
        of several models. For classes their probabilities, as for `estimate`, such as those of `staged_predict_proba`.
      z: Released labels, shape (n,), as released.
      release: The release.
      center: Center of each record, shape (n,), as released, if there is one.
      metric: As for `compare`; None for `mean_squared_error`, or `forward_loss` of classes.
      clipping: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      The stage, its metric and its standard error.

    Raises:
      ValueError: If there is no stage, an argument is wrong, or the mechanism has no exact correction.
    """
    metric = compared_metric(metric, release, "forward_loss")
    best: Stage | None = None
    for index, given in enumerate(predictions):
        found = estimate(metric, given, z, release, center=center, clipping=clipping, exact=exact)
        if best is None or found.value < best.value:
            best = Stage(index, *found)
    if best is None:
        raise ValueError("predictions has no stage")
    return best


def evaluation(
    library: str,
    z: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None = None,
    metric: str | None = None,
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
    clipping: str = "ends",
    exact: bool = True,
) -> Callable[[ArrayLike, object], tuple[str, float, bool] | tuple[str, float]]:
    """Makes a custom metric for the early stopping of a library, over one validation set.

    Args:
      library: `lightgbm` (for `feval`, which gets the name, the value and False, for less is better) or `xgboost` (for
        `custom_metric`, which gets the name and the value), both of the native interface.
      z: Released labels of the validation set, shape (n,), as released.
      release: The release.
      center: Center of each record, shape (n,), as released, if there is one.
      metric: As for `compare`; None for `mean_squared_error`, or `forward_loss` of classes.
      transform: Function of the scores that gives predictions, such as `numpy.exp` for Poisson loss; None if scores are
        predictions, and for the softmax of K scores of classes, or the logistic function of one score of two classes.
      clipping: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      A function of scores and data set.

    Raises:
      ValueError: If an argument is wrong; later, if the library calls it for a data set of another size.
    """
    check_library(library)
    metric = compared_metric(metric, release, "forward_loss")
    # Wrong labels are found here, and not in the middle of the training.
    records = len(release.places(z, center)[0])
    name = metric if metric == "forward_loss" else f"corrected_{metric}"
    if transform is None and isinstance(release, ClassRelease):
        transform = score_probabilities

    def function(scores: ArrayLike, data: object) -> tuple[str, float, bool] | tuple[str, float]:
        """The metric of one round."""
        raw = np.asarray(scores, np.float64)
        if len(raw) != records:
            raise ValueError(
                f"{name} is for a validation set of {records:,} records, not {len(raw):,}: leave the training "
                "set out of the evaluation"
            )
        predictions = raw if transform is None else transform(raw)
        value = estimate(metric, predictions, z, release, center=center, clipping=clipping, exact=exact).value
        return (name, value, False) if library == "lightgbm" else (name, value)

    return function
