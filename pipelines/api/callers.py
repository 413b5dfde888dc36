"""The code that calls this package: warnings are shown at its line, and models of scikit-learn are refused."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

from ...mechanisms.analysis.findings import Warn


class ReleaseWarning(UserWarning):
    """Warning about released labels, from released facts only: a domain that is too small, noisy labels, and so on."""


def refuse_pipeline() -> None:
    """Refuses to be a part of a model of scikit-learn, which takes released labels for features, or releases again."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if caller.partition(".")[0] in ("sklearn", "imblearn"):
        raise TypeError(
            "LabelPrivatizer cannot be a step of a Pipeline, ColumnTransformer or TransformedTargetRegressor, nor part "
            "of another model: these transform features X, or labels y that they also transform back, and each fit "
            "would be a release. Privatize the labels first, and train the model on them: released = "
            "privatizer.fit_transform(X, y), then model.fit(X, released)"
        )


def show(released: Iterable[Warn]) -> None:
    """Shows the warnings of a release that is charged: where they are errors, none takes the place of its labels."""
    for warning in released:
        try:
            warn(warning.text)
        except ReleaseWarning:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ReleaseWarning)
                warn(warning.text)


def warn(text: str) -> None:
    """Shows a `ReleaseWarning` at the line that called this package."""
    warnings.warn(text, ReleaseWarning, stacklevel=_level_outside())


def _level_outside() -> int:
    """Level in the stack, as `warnings.warn` counts it, of the code that called this package."""
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
