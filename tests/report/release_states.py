"""States that a release may have, made in memory: kinds of labels, centers, units, and what is given beside labels."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from labeldp import LabelPrivatizer
from labeldp.mechanisms.analysis.findings import Warn
from labeldp.pipelines.cli.announcement import announce
from labeldp.pipelines.publish.job_result import JobResult
from labeldp.pipelines.publish.manifest import released_facts
from labeldp.pipelines.publish.release_steps import ReleasedLabel
from labeldp.pipelines.spec.mechanism_file import MechanismFile

GRID = {"label_min": 0, "label_max": 20, "label_step": 1}
CLASSES = {"label_classes": ["a", "b", "c"]}
UNITS = {"unit_column": "<i>user</i>", "max_records_per_unit": 2}
NAMES = ("none", "<i>cold</i>", "a very long name of a class which no chart has the space for", "flu & fever")
HOSTILE = {"label_classes": list(NAMES), "prior_epsilon": 0.1}
MANY = {"label_classes": [f"{place:02} a class with a long name" for place in range(40)]}


@dataclass(frozen=True)
class State:
    """Parameters of a release, its number of records, and what is given beside the labels."""

    parameters: dict[str, Any]
    rows: int = 600
    given: tuple[str, ...] = ()
    labels: Callable[[np.ndarray], Any] = np.asarray

    def releases(self, folder: Path, key_file: Path) -> Iterator[LabelPrivatizer]:
        """Gives an estimator after each of fit, transform and fit_transform."""
        rng = np.random.default_rng(3)
        feature = rng.normal(size=self.rows)
        labels = np.clip(np.rint(10 + 5 * feature + rng.normal(size=self.rows)), 0, 20)
        if "label_classes" in self.parameters:
            labels = np.array(["a", "b", "c"])[np.digitize(np.abs(feature), [0.4, 1.0])]
        beside = {
            "features": {"<i>f</i>": feature, "g": rng.integers(0, 3, self.rows)},
            "center": np.clip(10 + 5 * feature, 0, 20),
            "units": np.arange(self.rows) // 3,
            "ids": np.arange(self.rows),
        }
        given = {name: beside[name] for name in self.given}
        own: dict[str, Any] = {
            "epsilon": 1,
            "noise_key_file": key_file,
            "ledger": folder / "ledger.jsonl",
            "source": "/log",
        }
        privatizer = LabelPrivatizer(**{**own, **self.parameters})
        for step in (privatizer.fit, privatizer.transform, privatizer.fit_transform):
            step(self.labels(labels), **given)
            yield privatizer


def missing(labels: np.ndarray) -> list[Any]:
    """One of five labels is missing."""
    return [None if place % 5 == 0 else label for place, label in enumerate(labels.tolist())]


def named(labels: np.ndarray) -> np.ndarray:
    """The classes of NAMES, of which the last one is rare."""
    return np.array(NAMES)[np.where(np.arange(len(labels)) % 40 == 0, 3, np.searchsorted(["a", "b", "c"], labels))]


STATES = {
    "numbers, few": State(GRID, rows=30),
    "two labels": State(GRID | {"label_max": 1}),
    "one value": State(GRID, labels=lambda drawn: np.full(len(drawn), 7.0)),
    "biased": State(GRID | {"mechanism": "rr_on_bins"}),
    "not pure": State(GRID | {"mechanism": "gaussian", "delta": 1e-6}),
    "poisson": State(GRID | {"loss": "poisson"}),
    "negative labels": State(GRID | {"label_min": -5}),
    "coarse grid": State(GRID | {"label_step": 0.01, "mechanism": "rr_on_bins"}),
    "units": State(GRID | UNITS, given=("units",)),
    "units with delta": State(GRID | UNITS | {"mechanism": "gaussian", "delta": 1e-6}, given=("units",)),
    "linear center that clips": State(
        GRID | {"epsilon": 0.2, "center": "linear", "mechanism": "unbiased"}, 3000, ("features",)
    ),
    "cells": State(GRID, rows=6000, given=("features",)),
    "classes": State(CLASSES),
    "classes, few": State(CLASSES, rows=20),
    "classes by rr": State(HOSTILE | {"mechanism": "rr"}, rows=4000, labels=named),
    "top k": State(HOSTILE | {"mechanism": "rr_top_k"}, rows=4000, labels=named),
    "unseen classes": State({"label_classes": ["x", "y", "z"]}),
    "many classes": State(MANY),
    "class of missing labels": State(CLASSES | {"missing_label": "b"}, labels=missing),
    "classes of units": State(CLASSES | UNITS, given=("units",)),
    "center of classes": State(
        {"label_classes": list(NAMES[:3]), "epsilon": 2, "center": "cells"}, 6000, ("features",), named
    ),
    "center of unseen classes": State({"label_classes": ["x", "y"]}, given=("features",)),
    "center of many classes": State(
        {"label_classes": [f"{place}" for place in range(40)]}, rows=3000, given=("features",)
    ),
    "center of classes of units": State(CLASSES | UNITS, rows=900, given=("features", "units")),
    "center and missing classes": State(CLASSES | {"missing_label": "b"}, given=("features",), labels=missing),
}


def announced(privatizer: LabelPrivatizer, mechanism: MechanismFile) -> str:
    """Lines that a job prints of a release by this mechanism."""
    release = vars(privatizer)["_release"]
    loss = "zero_one" if mechanism.classes is not None else privatizer.loss
    facts = released_facts(mechanism, release.binding.records, 2, loss)
    result = JobResult(release.binding, release.binding.digest, {}, units=release.counts)
    label: Any = SimpleNamespace(name="y", budget=SimpleNamespace(epsilon=1.0))
    request: Any = SimpleNamespace(
        output="out",
        budget=label.budget,
        validation=None,
        command=release.command,
        key=SimpleNamespace(path="noise.key"),
    )
    with contextlib.redirect_stdout(io.StringIO()) as lines:
        announce(request, [ReleasedLabel(label, result, mechanism, facts)], verbose=True)
    return lines.getvalue()


@dataclass(frozen=True)
class Shown:
    """What users see of a release in memory.

    pages, warnings: After fit, transform and fit_transform. `page` is the last one.
    document: The mechanism file.
    """

    privatizer: LabelPrivatizer
    pages: Sequence[Any]
    warnings: Sequence[Sequence[Warn]]
    announcement: str

    @property
    def page(self) -> Any:
        return self.pages[-1]

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.privatizer.mechanism_.to_text())

    @property
    def prior(self) -> np.ndarray:
        """Weights of the noised histogram, shape (k,)."""
        return np.array(self.document["prior"]["weights"])

    @property
    def channel(self) -> np.ndarray:
        """Probabilities of each class (column) given each class (row), from the integers."""
        document = self.document
        square = np.zeros((len(document["labels"]),) * 2)
        for output, column in zip(document["outputs"], document["columns"], strict=True):
            weights = [int(weight) for weight, times in column for _ in range(times)]
            square[:, int(output)] = np.array(weights, float) / 2 ** document["bits"]
        return square
