"""Privatization of labels in memory, without Beam: the labels that the command line would release, as an array."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np

from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import Verdict, Warn, debiasing, release_warnings, verdict
from ...mechanisms.center.feature_rows import RowMap
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.core.budget import BudgetSplit, round_up
from ...mechanisms.core.certificate import Certificate
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.losses import ZERO_ONE
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.keyed_words import KEY_BYTES
from ...mechanisms.registry import AUTO
from ...mechanisms.release.bound_noise import NoiseBinding, make_binding
from ...mechanisms.release.label_column import LabelColumn, LabelMeaning
from ...mechanisms.release.unit_bound import UnitBound, UnitCounts
from ...transforms.errors import InputError
from ...transforms.io.filesystems import is_remote
from ..errors import FieldError, FieldNames, as_parameter
from ..ledger.ledger import LEDGER_NAME, Ledger, is_database, without_password
from ..publish.manifest import released_facts
from ..publish.protocol import Charge, charged, release_entries
from ..spec.fields import DEFAULT_LOSS, Fields, LabelFields, arguments_text, declared, option, renewed
from ..spec.label import make_label, request_in_memory
from ..spec.limits import read_caps, read_unusable_fraction
from ..spec.mechanism_file import MechanismFile
from ..spec.target_checks import check_scheme, create_key, noise_key_file, path_of
from ..spec.written_files import write_file
from .feature_frames import FeatureFrame, labels_and_features, read_frame
from .label_arrays import check_index, column_name, read_numbers, width
from .memory_release import (
    Given,
    MemoryRequest,
    as_shares,
    class_probabilities,
    draw_class_labels,
    draw_labels,
    fit_center,
    predicted,
    read_centers,
    read_records,
    solve_release,
    with_features,
)

Output = Callable[[Any, np.ndarray, "tuple[str, np.ndarray] | None"], Any]
"""Function (released labels, mask of the released records, name and values of centers or None) -> an output."""
_KEY_LEFT_OUT = "left out of the copy"
_NAME_WITH_IDS = "labels"


class ReleaseWarning(UserWarning):
    """Warning about released labels, from released facts only: a domain that is too small, noisy labels, and so on."""


class NotFittedError(ValueError, AttributeError):
    """A `LabelPrivatizer` is used before `fit` or `fit_transform`."""


@dataclass(frozen=True)
class _LatestRun:
    """The latest release: what the report is about. `features` is their number; None if it is not known."""

    command: str
    source: str
    binding: NoiseBinding
    mechanism: MechanismFile
    epsilon: float
    counts: UnitCounts | None = None
    features: int | None = None


class _Fitted:
    """What a fitted privatizer has; no parameters."""

    randomizer_: Randomizer
    certificate_: Certificate
    prior_: Prior
    budget_: BudgetSplit
    certified_epsilon_: float
    verdict_: Verdict
    warnings_: list[Warn]
    records_: int
    source_: str
    labels_: np.ndarray
    center_: np.ndarray | None
    center_name_: str | None
    classes_: LabelClasses | None
    _release: _LatestRun


@dataclass(kw_only=True, eq=False, repr=False)
class LabelPrivatizer(LabelFields, _Fitted):
    """Replaces labels by draws from an optimal label-DP randomizer, in memory and without Beam.

    It follows scikit-learn's conventions and does not need scikit-learn: `fit` releases the noised histogram and solves
    for the mechanism, `transform` draws labels, `fit_transform` does both in one release. They take labels as numpy
    arrays, pandas or polars Series, Arrow arrays, lists or frames of one column, and return the same kind, as float64,
    with the same name and index; classes (`label_classes`) in the given type. A label that is missing, NaN or infinite
    stays missing, unless `missing_label` says what it counts as.

    With `features`, labels are privatized around a linear center, as `labeldp privatize` does by default: a part of
    epsilon releases a linear model of the label, and what it misses is randomized, with less noise. Features are
    public; `center_` has the center of each record, for training on both. Labels and features may be given by position
    in either order, as `fit_transform(labels, features)` or `fit_transform(X, y)`: their shapes tell them apart.

    The labels are those that the command line writes for the same rows in the same order, with the same key, if `label`
    names the column, `source` the input file with its absolute path, and the parameters are those of the flags:
    `fit_transform` gives the labels of `labeldp privatize`, `fit` and `transform` those of `labeldp fit` and `labeldp
    apply`, without features those of `--center none`. With `id_column` and `ids`, ids take the place of the file and
    its rows.

    Privacy. Without `source` and ids each call of `fit`, `transform` and `fit_transform` is a release of its own, with
    fresh noise and a charge, also over equal labels: they may be those of others. With `source`, or ids, the noise is a
    function of the key, the labels and the parameters: the same call over the same labels under the same key repeats
    the release and costs nothing; if one label changed, all noise is fresh. Each release is charged to the ledger
    before the labels are returned. Anyone who has the key can remove the noise. An estimator holds no label; a pickled
    one does not hold `noise_key`.

    Attributes:
      randomizer_: The randomizer, with its certificate; absent for classes that are drawn from a center.
      certificate_: Its true epsilon and its bias, recomputed from its integers; absent like the randomizer.
      prior_: Noised distribution of the labels; with a center, of the residuals in the range of the randomizer.
      budget_: Epsilon of the histogram and of the labels.
      certified_epsilon_: Epsilon that the latest release has spent, as the ledger has it: of center, histogram and, if
        they were released, labels, together.
      verdict_: Verdict on what the labels can be used for.
      warnings_: Warnings about the release, as `ReleaseWarning` shows them.
      records_: Number of records with a usable label.
      source_: Name of the input of the latest release, which the ledger has as well: given as `source`, it repeats the
        release.
      labels_: The label domain that the mechanism uses, shape (k,), float64: the declared one, or a coarser grid.
      center_: Center of each record of the latest call, labels of the domain, shape (n,), float64; of classes their
        probabilities, shape (n, K). None without a center of features.
      center_name_: Name of the column of centers; None without one.
      classes_: Classes, whose places are the labels of the mechanism; None for numbers.
    """

    # Narrower than in a request: one label, and always a budget.
    label: str = renewed("label", "label")  # type: ignore[assignment]
    epsilon: float = renewed("epsilon")  # type: ignore[assignment]
    mechanism: str | None = renewed("mechanism", AUTO)
    loss: str | None = renewed("loss", DEFAULT_LOSS)
    source: str | None = option(
        None, None,
        "name of the input, to which records without ids are bound. Two calls with the same one are about the same "
        "records, so that equal labels are the same release: for the bytes of the command line, the absolute path of "
        "its only input file. Default: a random name for each call",
    )  # fmt: skip
    features: int | None = option(
        None, None,
        "number of features of the model that will be trained, for verdict and warnings; default: the number of "
        "columns of the features that are given with the labels, if any",
    )  # fmt: skip
    noise_key: bytes | None = option(None, None, "secret key, 32 bytes; default: kept in a file")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters, the secret key among them if it was given as bytes.

        Args:
          deep: Has no effect: no parameter is an estimator.

        Returns:
          Value by parameter name.
        """
        return {name: getattr(self, name) for name in declared(LabelPrivatizer)}

    def set_params(self, **parameters: Any) -> LabelPrivatizer:
        """Sets parameters.

        Args:
          **parameters: Value by parameter name.

        Returns:
          This object.

        Raises:
          ValueError: If there is no such parameter.
        """
        known = declared(LabelPrivatizer)
        for name in parameters:
            if name not in known:
                raise ValueError(f"LabelPrivatizer has no parameter {name!r}; it has: {', '.join(known)}")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def fit(
        self,
        labels: Any,
        y: Any = None,
        *,
        features: Any = None,
        center: Any = None,
        ids: Any = None,
        units: Any = None,
    ) -> LabelPrivatizer:
        """Releases the noised histogram of the labels and the mechanism that is solved for it, as `labeldp fit`.

        The ledger is charged for the histogram. No label is released.

        Args:
          labels: The labels of n records, or features if `y` is given.
          y: The labels if features come first, as scikit-learn has them; or the features.
          features: Public features of the records: a pandas or polars DataFrame, an Arrow table or record batch, a dict
            of columns, or an array of shape (n, m), whose columns are named x0, x1, ...
          center: Public prediction of each label, with `center_column`.
          ids: Unique id of each record, integers or texts, with `id_column`.
          units: Privacy unit of each record, integers or texts, with `unit_column`. Records without one are left out.

        Returns:
          This object.

        Raises:
          ValueError: If a parameter or an argument is wrong, or the mechanism has no randomizer for the histogram.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        _refuse_pipeline()
        self._fit("fit", _given(labels, y, features, center, ids, units))
        return self

    def transform(
        self,
        labels: Any,
        y: Any = None,
        *,
        features: Any = None,
        center: Any = None,
        ids: Any = None,
        units: Any = None,
    ) -> Any:
        """Releases labels that the fitted mechanism randomizes, as `labeldp apply`.

        The ledger is charged for the labels, whether they are those of `fit` or others, and again for each call without
        `source` and ids. With them, the labels of those of `fit` are those of `fit_transform`.

        Args:
          labels: The labels of n records, or features if `y` is given.
          y: The labels if features come first, as scikit-learn has them; or the features.
          features: Public features of the records: a pandas or polars DataFrame, an Arrow table or record batch, a dict
            of columns, or an array of shape (n, m), whose columns are named x0, x1, ...
          center: Public prediction of each label, with `center_column`.
          ids: Unique id of each record, integers or texts, with `id_column`.
          units: Privacy unit of each record, integers or texts, with `unit_column`. Records without one are left out.

        Returns:
          The released labels, in a column of the same kind.

        Raises:
          NotFittedError: If there is no mechanism yet.
          ValueError: If a parameter or an argument is wrong.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        _refuse_pipeline()
        mechanism = self._latest().mechanism
        given = _given(labels, y, features, center, ids, units)
        _check_index(given.labels, self.label)
        request, secret = self._request()
        linear = mechanism.made_center
        column = LabelColumn(
            request.column.name, mechanism.domain, request.column.id_column, mechanism.rounding,
            mechanism.center_column, unit=_unit_of(request, mechanism),
            meaning=LabelMeaning(mechanism.classes, mechanism.declared, _missing_of(request, mechanism)),
        )  # fmt: skip
        records, centers = read_records(request, column, secret, given, linear is not None), None
        if linear is not None:
            features = _needed(given.features, linear.map, column)
        if mechanism.class_center is not None:
            center = mechanism.class_center.center
            coded = class_probabilities(center, features)
            binding, centers = make_binding(records.summary(secret), column, mechanism.budget, secret), as_shares(coded)
            drawn = draw_class_labels(records, center, coded, binding, secret)
        else:
            if isinstance(linear, LinearCenter):
                centers = predicted(linear, features, column.labels)
                records = records.around(centers)
            binding = make_binding(records.summary(secret), column, mechanism.budget, secret)
            drawn = draw_labels(records, mechanism.randomizer, binding, secret)
        epsilon = mechanism.total_epsilon(mechanism.labels_budget[0])
        number = _number_of_features(given.features, column)
        release = _LatestRun("apply", request.source, binding, mechanism, epsilon, records.counts, number)
        self._publish(request, release, centers, fitted=False)
        return drawn

    def fit_transform(
        self,
        labels: Any,
        y: Any = None,
        *,
        features: Any = None,
        center: Any = None,
        ids: Any = None,
        units: Any = None,
    ) -> Any:
        """Releases labels, with the mechanism that is solved for their noised histogram, as `labeldp privatize`.

        The ledger is charged for histogram and labels.

        Args:
          labels: The labels of n records, or features if `y` is given.
          y: The labels if features come first, as scikit-learn has them; or the features.
          features: Public features of the records: a pandas or polars DataFrame, an Arrow table or record batch, a dict
            of columns, or an array of shape (n, m), whose columns are named x0, x1, ...
          center: Public prediction of each label, with `center_column`.
          ids: Unique id of each record, integers or texts, with `id_column`.
          units: Privacy unit of each record, integers or texts, with `unit_column`. Records without one are left out.

        Returns:
          The released labels, in a column of the same kind.

        Raises:
          ValueError: If a parameter or an argument is wrong, or the mechanism has no randomizer for the histogram.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        _refuse_pipeline()
        return self._fit("privatize", _given(labels, y, features, center, ids, units))

    def predict_center(self, features: Any) -> np.ndarray:
        """Predicts the linear center of records, those of the release or new ones. It costs nothing.

        Models that are trained around the center add it to their predictions.

        Args:
          features: Features with the columns of those of `fit`.

        Returns:
          Labels of the domain, shape (n,), float64; of classes their probabilities, shape (n, K), float64.

        Raises:
          NotFittedError: If there is no mechanism yet.
          ValueError: If the mechanism has no linear center, or a feature is missing or has the wrong type.
          TypeError: If the features are of an unknown kind.
        """
        mechanism = self._latest().mechanism
        if mechanism.class_center is not None:
            return as_shares(class_probabilities(mechanism.class_center.center, read_frame(features)))
        if mechanism.center is None or mechanism.center.linear is None:
            raise ValueError("there is no linear center: fit with features first")
        return predicted(mechanism.center.linear, read_frame(features), np.array(mechanism.domain))

    def debias(self, values: Any, *, center: Any = None, features: Any = None) -> Any:
        """Removes the bias of released labels, or of predictions learned from them, by the line of the verdict.

        The result is right on average over many records. It is post-processing and costs nothing.

        Args:
          values: Released labels, or predictions.
          center: Center of each of them, if labels are privatized around one; `center_` for those of the latest call.
          features: Their features, in place of a linear center.

        Returns:
          The debiased values, in a column of the same kind; unchanged values for a mechanism without bias.

        Raises:
          NotFittedError: If there is no mechanism yet.
          ValueError: If the mechanism has no line, or an argument is wrong.
          TypeError: If an argument is of an unknown kind.
        """
        facts = self._facts(self._latest())
        if facts.classes is not None:
            raise ValueError("classes have no numbers to debias: correct shares and models, see labeldp.training")
        read = read_numbers(values, "values")
        moments = facts.whole_utility
        if facts.utility.unbiased:
            return read.restore(read.values)
        if moments.line is None:
            raise ValueError(f"the labels cannot be debiased: {debiasing(facts).advice}")
        intercept, slope = moments.line
        around: np.ndarray | float = 0.0
        if facts.center is not None:
            column = LabelColumn(self.label, self._latest().mechanism.domain, center="center of debias")
            centers = self.predict_center(features) if center is None and features is not None else center
            around = column.labels[read_centers(column, centers, len(read.values))[0]]
        return read.restore(around + (read.values - around - intercept) / slope)

    @property
    def mechanism_(self) -> MechanismFile:
        """Mechanism of the latest release, with its prior, center and classes: what `write_mechanism` writes.

        Raises NotFittedError if there is no mechanism yet.
        """
        return self._latest().mechanism

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the HTML report of the latest release, as `labeldp report`. Needs the extra `evaluation`.

        Args:
          path: File to write; an existing one is replaced.

        Raises:
          NotFittedError: If there is no release yet.
          InputError: If the extra is not installed, or the file cannot be written.
        """
        release = self._latest()
        # A wing, by name; it needs jinja2, which an extra installs.
        reports: Any = importlib.import_module("labeldp.report.memory_report")
        with _python_errors(InputError):
            reports.write_report(
                os.fspath(path), release.command, release.binding, release.mechanism, release.epsilon,
                self._facts(release), Ledger(_ledger_place(self.ledger)).runs(),
                self.source or f"{release.binding.column}, released in memory", self.id_column, release.counts,
            )  # fmt: skip

    def write_mechanism(self, path: str | os.PathLike[str]) -> None:
        """Writes the mechanism file, for `labeldp audit`, `attack`, `report` and `apply`.

        Args:
          path: File to write; an existing one is replaced.

        Raises:
          NotFittedError: If there is no mechanism yet.
          OSError: If the file cannot be written.
        """
        write_file(os.fspath(path), self._latest().mechanism.to_text())

    def _fit(self, command: str, given: Given, output: Output = lambda drawn, kept, centers: drawn) -> Any:
        """Releases center, histogram and mechanism; for `privatize` the labels as well.

        What `output` makes of the labels is returned. It is made before the ledger is charged: one that cannot be made
        costs nothing.
        """
        _check_index(given.labels, self.label)
        if given.features is not None:
            features, left_out = given.features.without_levels(self.center_features)
            given = replace(given, features=features)
            if left_out is not None:
                warn(left_out)
        request, secret = self._request(given)
        column, chosen, features = request.column, request.label.features, given.features
        classes = column.classes is not None
        records, linear, centers = read_records(request, column, secret, given, chosen is not None), None, None
        if chosen is not None and not classes:
            assert features is not None
            linear = fit_center(request.label, features, chosen, records, secret)
            centers = predicted(linear, features, column.labels)
            records = records.around(centers)
        binding, mechanism = solve_release(request, records, secret, linear)
        center: Any = None
        if chosen is not None and classes:
            assert features is not None
            released = fit_center(request.label, features, chosen, records, secret, binding)
            # Without a center, what was released before is left.
            center = None if released is binding else released
        coded = None
        if center is not None:
            assert features is not None
            mechanism, coded = MechanismFile.of_release(center, binding), class_probabilities(center, features)
            centers = as_shares(coded)
        made = None
        if command != "fit":
            if coded is not None:
                drawn = draw_class_labels(records, center, coded, binding, secret)
            else:
                drawn = draw_labels(records, mechanism.randomizer, binding, secret)
            made = output(drawn, records.kept, _named_centers(mechanism, centers))
        epsilon, number = request.label.budget.epsilon, _number_of_features(features, column)
        release = _LatestRun(command, request.source, binding, mechanism, epsilon, records.counts, number)
        self._publish(request, release, centers, fitted=True)
        return made

    def _request(self, given: Given | None = None) -> tuple[MemoryRequest, bytes]:
        """The checked parameters, with the center of what is given to be fitted, and the key."""
        if isinstance(self.noise_key, str):
            raise ValueError(
                "this copy has no noise_key, which is not pickled: set_params(noise_key=...), or use a file"
            )
        parameters = {name: value for name, value in self.get_params().items() if name not in _OF_MEMORY}
        if parameters["mechanism"] == AUTO:
            parameters["mechanism"] = None
        if self.label_classes is not None and parameters["loss"] == DEFAULT_LOSS:
            parameters["loss"] = None
        source = self.source
        if source is None:
            # Under ids it names the request alone.
            source = _NAME_WITH_IDS if self.id_column is not None else f"call {os.urandom(16).hex()}"
        if not isinstance(source, str):
            raise ValueError("source must be text")
        number = self.features
        if number is not None and not (isinstance(number, Integral) and not isinstance(number, bool) and number >= 0):
            raise ValueError(
                "features must be a whole number of at least 0: features of records are an argument of fit"
            )
        with _python_errors(ValueError):
            fields = Fields.of_keywords(parameters, "LabelPrivatizer")
            label = make_label(fields)
            if given is not None:
                label = with_features(fields, label, given.features)
            request = MemoryRequest(label, source, read_caps(fields), read_unusable_fraction(fields))
        with _python_errors(InputError):
            return request, _load_key(self.noise_key, fields.noise_key_file)

    def _latest(self) -> _LatestRun:
        release = vars(self).get("_release")
        if release is None:
            raise NotFittedError("this LabelPrivatizer is not fitted yet: call fit or fit_transform first")
        return release

    def _facts(self, release: _LatestRun) -> ReleasedFacts:
        binding = release.binding
        features = release.features if self.features is None else self.features
        loss = self.loss if release.mechanism.classes is None else ZERO_ONE.name
        return released_facts(release.mechanism, binding.records, features, loss, binding.missing_centers)

    def _publish(self, request: MemoryRequest, release: _LatestRun, centers: np.ndarray | None, fitted: bool) -> None:
        """Charges the ledger, keeps what is released, and warns."""
        binding, mechanism = release.binding, release.mechanism
        entries = release_entries(binding, mechanism, with_labels=release.command != "fit")
        charge = Charge(
            release.command,
            request_in_memory(release.command, request.source, request.label),
            request.label.name,
            binding.unit,
            binding.records,
            f"{binding.digest:064x}",
            f"LabelPrivatizer: {request.source}",
            entries,
            mechanism.drawn_by,
            solved=fitted,
        )
        facts = self._facts(release)
        judged, warned = verdict(facts, as_parameter), release_warnings(facts, as_parameter)
        with _python_errors(InputError), charged(Ledger(_ledger_place(self.ledger)), charge, request.caps):
            self._release, self.source_, self.center_ = release, release.source, centers
            self.certified_epsilon_ = round_up(sum((Fraction(entry.epsilon) for entry in entries), Fraction(0)))
        if fitted:
            for name in ("randomizer_", "certificate_"):
                vars(self).pop(name, None)
            if mechanism.solved is not None:
                self.randomizer_, self.certificate_ = mechanism.solved, mechanism.solved.certificate()
            self.prior_, self.budget_, self.labels_ = mechanism.prior, binding.budget, np.array(mechanism.domain)
            self.records_, self.classes_ = binding.records, mechanism.classes
            self.center_name_ = mechanism.center_column
        self.verdict_, self.warnings_ = judged, warned
        for warning in self.warnings_:
            # They tell of what is released: not before it is charged. Then, no error may take the place of the result.
            try:
                warn(warning.text)
            except ReleaseWarning:
                with warnings.catch_warnings():
                    warnings.simplefilter("always", ReleaseWarning)
                    warn(warning.text)

    def __repr__(self) -> str:
        """Shows the parameters that are not the default; of the key only that it is there."""
        known = declared(LabelPrivatizer)
        shown = {name: value for name, value in self.get_params().items() if value is not known[name].default}
        if self.noise_key is not None:
            shown["noise_key"] = "..."
        if isinstance(self.ledger, str):
            shown["ledger"] = without_password(self.ledger)
        return f"LabelPrivatizer({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return "_release" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Properties of the estimator, for which scikit-learn asks from version 1.6 on."""
        utils: Any = importlib.import_module("sklearn.utils")
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(one_d_array=True, allow_nan=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle and copy, without the secret key and the password of the ledger."""
        ledger = without_password(self.ledger) if isinstance(self.ledger, str) else self.ledger
        return {**vars(self), "noise_key": None if self.noise_key is None else _KEY_LEFT_OUT, "ledger": ledger}


LabelPrivatizer.__init__.__doc__ = arguments_text(
    LabelPrivatizer, declared(LabelPrivatizer), "Stores the parameters. `fit` and `fit_transform` check them.", "memory"
)
_OF_MEMORY = ("source", "features", "noise_key")
"""Parameters that a release of files does not have."""


def _given(labels: Any, second: Any, features: Any, center: Any, ids: Any, units: Any) -> Given:
    """Arguments of a call, with labels and features told apart."""
    labels, features = labels_and_features(labels, second, features)
    if center is not None and features is not None:
        raise ValueError("center and features are two ways to a center: give one of them")
    return Given(labels, center, None if features is None else read_frame(features), ids, units)


def _check_index(labels: Any, label: Any) -> None:
    """Checks that the index that labels are released with is none of the labels."""
    for name in (label, column_name(labels) if width(labels) in (None, 1) else None):
        if isinstance(name, str):
            check_index(labels, name)


def _named_centers(mechanism: MechanismFile, centers: np.ndarray | None) -> tuple[str, np.ndarray] | None:
    name = mechanism.center_column
    return None if centers is None or name is None else (name, centers)


def _needed(features: FeatureFrame | None, row_map: RowMap, column: LabelColumn) -> FeatureFrame:
    """The features that linear centers of a fitted mechanism are made of; the label must be none of them."""
    if features is None:
        raise ValueError("features are missing: the mechanism is for labels around a center of them")
    if column.name in row_map.columns:
        raise ValueError(f"label {column.name!r} is a feature of the center, which is released as it is: fit again")
    return features


@contextmanager
def _python_errors(kind: type[Exception]) -> Iterator[None]:
    """Raises errors of fields, in a block, as errors of one class with the names of the parameters."""
    try:
        yield
    except FieldNames as error:
        raise kind(error.text(as_parameter)) from None


def _load_key(noise_key: bytes | None, path: str | None) -> bytes:
    """Loads the secret key of 32 bytes; a local file that does not exist is created, mode 0600.

    Raises ValueError if both are given, or the key is not 32 bytes; the key is not in the message. Raises InputError or
    FieldError if the file cannot be used.
    """
    if noise_key is None:
        key = noise_key_file(path)
        if not is_remote(key.path):
            create_key(key)
        return key.load()
    if path is not None:
        raise ValueError("noise_key and noise_key_file are given: leave one of them out")
    if not isinstance(noise_key, bytes) or len(noise_key) != KEY_BYTES:
        raise ValueError(f"noise_key must be {KEY_BYTES} bytes from the operating system, as os.urandom gives them")
    return noise_key


def _ledger_place(ledger: Any) -> str:
    """Path of the ledger, or URL of its database; by default beside an output that lies in the current folder."""
    text = LEDGER_NAME if ledger is None else os.fspath(ledger)
    if not text.strip():
        raise FieldError("{ledger} is empty: name a path")
    if is_database(text):
        return text
    if is_remote(text):
        check_scheme(text)
    return path_of("ledger", text)


def _unit_of(request: MemoryRequest, mechanism: MechanismFile) -> UnitBound | None:
    """The unit of the labels, which is that of the mechanism's histogram."""
    unit, fitted = request.column.unit, mechanism.unit
    if (None if unit is None else unit.request) != (None if fitted is None else fitted.request):
        raise ValueError("unit_column and max_records_per_unit are not those of fit: fit again")
    return unit


def _missing_of(request: MemoryRequest, mechanism: MechanismFile) -> float | None:
    """Label that a missing one counts as, of classes a place: that of the mechanism's histogram."""
    if request.column.missing_label != mechanism.missing_label:
        raise ValueError("missing_label is not that of fit: fit again")
    return mechanism.missing


def _number_of_features(features: FeatureFrame | None, column: LabelColumn) -> int | None:
    """Number of columns that are neither label, nor id, nor center; None if it is not known."""
    return None if features is None else len({*features.names} - {*column.columns})


def _refuse_pipeline() -> None:
    """Refuses to be a part of a model of scikit-learn, which takes released labels for features, or releases again."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if caller.partition(".")[0] in ("sklearn", "imblearn"):
        raise TypeError(
            "LabelPrivatizer cannot be a step of a Pipeline, ColumnTransformer or TransformedTargetRegressor, nor part "
            "of another model: these transform features X, or labels y that they also transform back, and each fit "
            "would be a release. Privatize the labels first, and train the model on them: released = "
            "privatizer.fit_transform(X, y), then model.fit(X, released)"
        )


def warn(text: str) -> None:
    """Shows a `ReleaseWarning` at the line that called this package."""
    warnings.warn(text, ReleaseWarning, stacklevel=_level_outside())


def _level_outside() -> int:
    """Level in the stack, as `warnings.warn` counts it, of the code that called this package."""
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
