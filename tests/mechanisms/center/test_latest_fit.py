"""Fits that keep their latest results: equal arguments are computed once, and no other ones are taken for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center import latest_fit
from labeldp.mechanisms.center.latest_fit import keep_latest


@dataclass(frozen=True, eq=False)
class One:
    values: Any


@dataclass(frozen=True, eq=False)
class Other:
    values: Any


ZEROS = np.zeros((2, 3))
DIFFERENT: list[tuple[Any, ...]] = [
    (1,), (1.0,), (True,), ("1",), ((1,),), ((1, 2),), ((1,), 2), ("1, 2",), ((), (1, 2)), (((), 1), 2), (None,),
    (0.0,), (-0.0,), (ZEROS,), (-ZEROS,), (ZEROS.T,), (ZEROS.ravel(),), (ZEROS.astype(np.int64),),
    (ZEROS.astype(np.float32), ZEROS.astype(np.float32)), (ZEROS, ZEROS), ([ZEROS, ZEROS],), (One(ZEROS),),
    (Other(ZEROS),), (One((ZEROS,)),), (One(1),), ({"a": ZEROS},), ({"b": ZEROS},), ({"a": ZEROS, "b": ZEROS},),
    ({},), ([{}],), ((),), ({"a": One(ZEROS)},), (np.array(["ab", "c"]),), (np.array(["a", "bc"]),),
]  # fmt: skip


def test_equal_arguments_are_computed_once_and_different_ones_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(latest_fit, "MOST_KEPT", len(DIFFERENT))
    calls: list[tuple[Any, ...]] = []

    @keep_latest
    def fit(*arguments: Any) -> int:
        calls.append(arguments)
        return len(calls)

    first = [fit(*arguments) for arguments in DIFFERENT]
    assert first == list(range(1, len(DIFFERENT) + 1))
    copies = [tuple(each.copy() if isinstance(each, np.ndarray) else each for each in one) for one in DIFFERENT]
    assert [fit(*arguments) for arguments in copies] == first


def test_kept_arrays_cannot_be_written() -> None:
    kept = keep_latest(lambda: One(({"a": [np.zeros(2)]},)))()
    with pytest.raises(ValueError, match="read-only"):
        kept.values[0]["a"][0][0] = 1.0


def test_only_the_latest_is_kept():
    calls: list[int] = []

    @keep_latest
    def fit(number: int) -> int:
        calls.append(number)
        return number

    for number in (1, 1, 2, 2, 1):
        assert fit(number) == number
    assert calls == [1, 2, 1]


def test_arrays_of_objects_are_refused():
    with pytest.raises(TypeError, match="array of objects"):
        keep_latest(lambda values: 1)(np.array([1, "a"], object))
