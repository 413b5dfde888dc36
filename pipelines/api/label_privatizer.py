"""Privatization of labels in memory, without Beam: the labels that the command line would release, as an array."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...mechanisms.analysis.findings import Verdict, Warn
from ...mechanisms.analysis.release_warnings import release_warnings, shown_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import debiasing, verdict
from ...mechanisms.core.budget import BudgetSplit, round_up
from ...mechanisms.core.certificate import Certificate
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.losses import ZERO_ONE
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.registry import AUTO
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.errors import InputError
from ...transforms.progress_log import progress_bar
from ..errors import as_parameter, one_line
from ..ledger.ledger import Ledger, without_password
from ..publish.manifest import judged_facts, released_facts
from ..publish.protocol import Charge, charged, release_entries
from ..publish.release_blocks import Blocks, privacy_lines, use_lines
from ..spec.fields import DEFAULT_LOSS, LabelFields, arguments_text, declared, option, renewed
from ..spec.label import request_in_memory
from ..spec.mechanism_file import MechanismFile
from ..spec.written_files import write_file
from .callers import refuse_pipeline, show, warn
from .feature_frames import read_frame
from .label_arrays import read_numbers
from .memory_release import (
    MemoryRelease,
    Outcome,
    in_blocks,
    read_centers,
    release_applied,
    release_fitted,
)
from .memory_request import Given, MemoryRequest, ledger_place, python_errors, read_request

if TYPE_CHECKING:
    from .feature_frames import DataFrame, Frame
    from .label_arrays import Column

Method = TypeVar("Method", bound=Callable[..., Any])
_RECORDS = """\
        Args:
          labels: The labels of n records, or features if `y` is given.
          y: The labels if features come first, as scikit-learn has them; or the features.
          features: Public features of the records: a pandas or polars DataFrame, an Arrow table or record batch, a dict
            of columns, or an array of shape (n, m), whose columns are named x0, x1, ...
          center: Public prediction of each label, with `center_column`.
          ids: Unique id of each record, integers, texts or bytes, with `id_column`.
          units: Privacy unit of each record, as ids, with `unit_column`. Records without one are left out.

"""
_KEY_LEFT_OUT = "left out of the copy"


class NotFittedError(ValueError, AttributeError):
    """A `LabelPrivatizer` is used before `fit` or `fit_transform`."""


def _of_records(method: Method) -> Method:
    """Adds the arguments of a call that takes records to its docstring."""
    before, section, after = (method.__doc__ or "").partition("        Returns:\n")
    method.__doc__ = f"{before}{_RECORDS}{section}{after}"
    return method


class _Fitted:
    """What a fitted privatizer has; no parameters."""

    randomizer_: Randomizer
    certificate_: Certificate
    prior_: Prior
    budget_: BudgetSplit
    certified_epsilon_: float
    verdict_: Verdict
    warnings_: list[Warn]
    summary_: Blocks
    records_: int
    source_: str
    labels_: np.ndarray
    center_: np.ndarray | None
    center_name_: str | None
    classes_: LabelClasses | None
    _release: MemoryRelease


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
      warnings_: Warnings about the release, those of the manifest. `ReleaseWarning` shows those that call for an act.
      summary_: The release in four blocks, to print: what was released, its privacy, its use, and what to do next.
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

    def set_params(self, **parameters: object) -> LabelPrivatizer:
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

    @_of_records
    def fit(
        self,
        labels: Column | Frame,
        y: Column | Frame | None = None,
        *,
        features: Frame | None = None,
        center: Column | DataFrame | None = None,
        ids: Column | DataFrame | None = None,
        units: Column | DataFrame | None = None,
    ) -> LabelPrivatizer:
        """Releases the noised histogram of the labels and the mechanism that is solved for it, as `labeldp fit`.

        The ledger is charged for the histogram. No label is released.

        Returns:
          This object.

        Raises:
          ValueError: If a parameter or an argument is wrong, or the mechanism has no randomizer for the histogram.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        refuse_pipeline()
        self._fit("fit", Given.of(labels, y, features, center, ids, units))
        return self

    @_of_records
    def transform(
        self,
        labels: Column | Frame,
        y: Column | Frame | None = None,
        *,
        features: Frame | None = None,
        center: Column | DataFrame | None = None,
        ids: Column | DataFrame | None = None,
        units: Column | DataFrame | None = None,
    ) -> Any:
        """Releases labels that the fitted mechanism randomizes, as `labeldp apply`.

        The ledger is charged for the labels, whether they are those of `fit` or others, and again for each call without
        `source` and ids. With them, the labels of those of `fit` are those of `fit_transform`.

        Returns:
          The released labels, in a column of the same kind.

        Raises:
          NotFittedError: If there is no mechanism yet.
          ValueError: If a parameter or an argument is wrong.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        refuse_pipeline()
        mechanism = self._latest().mechanism
        given = Given.of(labels, y, features, center, ids, units)
        request, secret = read_request(self.get_params(), given, fits=False)
        with progress_bar():
            outcome = release_applied(mechanism, request, given, secret)
        self._publish(request, outcome)
        return outcome.labels

    @_of_records
    def fit_transform(
        self,
        labels: Column | Frame,
        y: Column | Frame | None = None,
        *,
        features: Frame | None = None,
        center: Column | DataFrame | None = None,
        ids: Column | DataFrame | None = None,
        units: Column | DataFrame | None = None,
    ) -> Any:
        """Releases labels, with the mechanism that is solved for their noised histogram, as `labeldp privatize`.

        The ledger is charged for histogram and labels.

        Returns:
          The released labels, in a column of the same kind.

        Raises:
          ValueError: If a parameter or an argument is wrong, or the mechanism has no randomizer for the histogram.
          TypeError: If an argument is of an unknown kind.
          InputError: If key or ledger cannot be used, or a cap would be exceeded.
        """
        refuse_pipeline()
        return self._fit("privatize", Given.of(labels, y, features, center, ids, units))

    def predict_center(self, features: Frame) -> np.ndarray:
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
        drawing = self._latest().mechanism.drawing
        centers = in_blocks(drawing, read_frame(features), drawing.centers)
        if centers is None:
            raise ValueError("there is no linear center: fit with features first")
        return centers

    def debias(
        self, values: Column | DataFrame, *, center: Column | DataFrame | None = None, features: Frame | None = None
    ) -> Any:
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
        if facts.center.prior:
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
        reports = importlib.import_module("labeldp.report.memory_report")
        with python_errors(InputError):
            name = f"{release.binding.records:,} labels of {release.binding.column}"
            name = f"{name} in memory" if self.source is None else f"{self.source}: {name}"
            name = f"for {name}" if release.command == "fit" else name
            runs = Ledger(ledger_place(self.ledger)).runs()
            released = release.released(self._facts(release), name, self.id_column)
            reports.write_report(os.fspath(path), released, runs, release.measured)

    def write_mechanism(self, path: str | os.PathLike[str]) -> None:
        """Writes the mechanism file, for `labeldp audit`, `attack`, `report` and `apply`.

        Args:
          path: File to write; an existing one is replaced.

        Raises:
          NotFittedError: If there is no mechanism yet.
          OSError: If the file cannot be written.
        """
        write_file(os.fspath(path), self._latest().mechanism.to_text())

    def _fit(
        self,
        command: str,
        given: Given,
        output: Callable[[Outcome], Any] | None = None,
        release: Callable[[str, MemoryRequest, Given, bytes], Outcome] = release_fitted,
    ) -> Any:
        """Releases center, histogram and mechanism, for `privatize` the labels as well, or an output made of them.

        It is made before the ledger is charged: one that cannot be made costs nothing.
        """
        if given.features is not None:
            features, left_out = given.features.without_levels(self.center_features)
            given = replace(given, features=features)
            if left_out is not None:
                warn(left_out)
        request, secret = read_request(self.get_params(), given, fits=True)
        with progress_bar():
            outcome = release(command, request, given, secret)
        made = outcome.labels if output is None else output(outcome)
        self._publish(request, outcome)
        return made

    def _latest(self) -> MemoryRelease:
        release = vars(self).get("_release")
        if release is None:
            raise NotFittedError("this LabelPrivatizer is not fitted yet: call fit or fit_transform first")
        return release

    def _facts(self, release: MemoryRelease) -> ReleasedFacts:
        binding = release.binding
        features = release.features if self.features is None else self.features
        loss = self.loss if release.mechanism.classes is None else ZERO_ONE.name
        return released_facts(release.mechanism, binding.records, features, loss, binding.missing_centers)

    def _publish(self, request: MemoryRequest, outcome: Outcome) -> None:
        """Charges the ledger, keeps what is released, and warns."""
        release = outcome.release
        command, binding, mechanism = release.command, release.binding, release.mechanism
        entries, fitted = release_entries(binding, mechanism, with_labels=command != "fit"), command != "apply"
        name = request_in_memory(command, release.source, request.label)
        charge = Charge(
            command, name, request.label.name, binding.unit, binding.records, f"{binding.digest:064x}",
            f"LabelPrivatizer: {release.source}", entries, mechanism.drawing.fingerprint, solved=fitted,
        )  # fmt: skip
        facts = self._facts(release)
        judged = verdict(judged_facts(facts, command), release.measured, as_parameter)
        warned = release_warnings(facts, as_parameter)
        with python_errors(InputError), charged(Ledger(ledger_place(self.ledger)), charge, request.caps):
            self._release, self.source_, self.center_ = release, release.source, outcome.centers
            self.certified_epsilon_ = round_up(sum((Fraction(entry.epsilon) for entry in entries), Fraction(0)))
        if fitted:
            for name in ("randomizer_", "certificate_"):
                vars(self).pop(name, None)
            solved = mechanism.drawing.solved
            if solved:
                self.randomizer_, self.certificate_ = solved, solved.certificate()
            self.prior_, self.budget_, self.labels_ = mechanism.prior, binding.budget, np.array(mechanism.domain)
            self.records_, self.classes_ = binding.records, mechanism.classes
            self.center_name_ = mechanism.drawing.column
        self.verdict_, self.warnings_ = judged, warned
        made = "The mechanism" if command == "fit" else "New labels"
        self.summary_ = Blocks(
            [f"{made} for {binding.records:,} records of {one_line(request.label.name)}"],
            privacy_lines(release.epsilon, [mechanism]),
            use_lines([("", judged)]),
            ["report(PATH) explains it, write_mechanism(PATH) is for labeldp audit; keep or destroy the key."],
        )
        # They tell of what is released: not before it is charged.
        show(shown_warnings(facts, as_parameter))

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
        utils = importlib.import_module("sklearn.utils")
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
