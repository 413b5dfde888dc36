"""Fits of attacks and of the evaluation run in one thread, whatever the libraries would take."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from labeldp.attack.feature_leaks import find_leaks
from labeldp.attack.label_beliefs import GuessedLabels
from labeldp.attack.reconstruction import reconstruct
from labeldp.attack.record_features import FeatureMatrix
from labeldp.attack.released_channel import ReleasedLabels
from labeldp.study.dataset import Dataset
from labeldp.study.evaluation_cell import CLEAN, Cell, Task, score_cell
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_info, threadpool_limits

_RNG = np.random.default_rng(0)
_FEATURES, _PLACES = _RNG.normal(size=(400, 2)), _RNG.integers(0, 3, 400)
_COLUMNS: Any = {"a": _FEATURES[:, 0]}
_GUESSED, _RELEASED = GuessedLabels(np.arange(3.0), 0.5), ReleasedLabels(_PLACES.astype(float))
_FITS: dict[str, Callable[[], object]] = {
    "attack --features": lambda: find_leaks(_COLUMNS, _PLACES, _GUESSED, 0, str),
    "attack --truth": lambda: reconstruct(
        FeatureMatrix.of(_COLUMNS, 400), _PLACES, _GUESSED, _RELEASED, None, 1.0, 0, str
    ),
    "evaluate": lambda: score_cell(
        Cell(CLEAN, None, 0, "trees"), Task("y", (0.0, 1.0, 2.0)),
        Dataset.from_arrays(["a", "b"], _FEATURES, _PLACES.astype(float)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", _FITS)
def test_fits_run_in_one_thread(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def threads_of_pools() -> dict[str, int]:
        return {each["filepath"]: each["num_threads"] for each in threadpool_info()}

    threads: list[int] = []
    base: Any = HistGradientBoostingClassifier.__mro__[2]
    fit = base.fit

    def observed(*args: Any, **named: Any) -> Any:
        threads.extend(threads_of_pools().values())
        return fit(*args, **named)

    monkeypatch.setattr(base, "fit", observed)
    with threadpool_limits(limits=2):
        # OpenBLAS keeps one thread in a process that has forked threads when OPENBLAS_NUM_THREADS is 1; OpenMP has two.
        before = threads_of_pools()
        assert 2 in before.values()
        _FITS[command]()
        assert set(threads) == {1}
        assert threads_of_pools().items() >= before.items()
