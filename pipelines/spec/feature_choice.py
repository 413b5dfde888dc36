"""Center of features of a request: whether one is made, and of which features. Loads no Beam.

Functions raise FieldError if a field of the request is wrong.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ...mechanisms.center.class_logit import MOST_CLASSES
from ...mechanisms.center.class_partition import MOST_CLASS_SAMPLE
from ...mechanisms.center.linear_center import MOST_SAMPLE
from ...mechanisms.center.residuals import check_even
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.label_grid import is_even
from ...mechanisms.registry import AUTO
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_columns import is_feature
from ...transforms.errors import listed
from ...transforms.progress_log import LOGGER
from ..errors import FieldError, did_you_mean, field_errors
from .fields import CELL_CENTER, LINEAR_CENTER, MARGINAL_CENTER, MODELS_OF_LOG, NO_CENTER, Fields, names_of
from .label import Label

# Largest epsilons at which a center of classes is better than randomized response in most of docs/results: of more than
# two classes, and of two, where one is often rare.
CLASS_CENTER_EPSILON, TWO_CLASSES_EPSILON = 2.0, 4.0
# Over fewer labels, residuals are not finer than the noise.
_LEAST_LABELS = 5


class FeatureTable(NamedTuple):
    """Columns that features are chosen from.

    Attributes:
      schema: Their names and types.
      source: File that they are of, or what stands for it in messages.
      field: Field that names the source, in braces; None for an argument, which the source is.
      seen: What of the source the schema is of, if that is not all.
      where: Column of the filter.
    """

    schema: pa.Schema
    source: str
    field: str | None = None
    seen: str = ""
    where: str | None = None


@dataclass(frozen=True)
class CenterChoice:
    """Center that the fields of a label ask for, and what decides whether one is made by default.

    Attributes:
      given: linear, cells, marginals or none; None for the default.
      column: Column of the center, which is new if one of features is made.
      features: Names of the features; None for all of them.
      left_out: Columns that are not released.
      purpose: Purpose of the release; None for the default.
      mechanism: Name of the mechanism; None for the default.
      epsilon: Budget of the label; None for that of a mechanism file.
      delta: Its delta; None for pure DP.
    """

    given: str | None
    column: str | None
    features: tuple[str, ...] | None
    left_out: tuple[str, ...]
    purpose: str | None
    mechanism: str | None
    epsilon: float | None
    delta: float | None

    @classmethod
    def of(cls, fields: Fields) -> CenterChoice:
        """Takes the choice from the fields. Refuses a center that is there and is not."""
        if fields.center == NO_CENTER:
            given = [name for name in ("center_column", "center_features") if getattr(fields, name) is not None]
            if given:
                raise FieldError(f"{{center}} none has no {{{given[0]}}}: leave one of them out")
        features = None if fields.center_features is None else names_of(fields.center_features)
        return cls(
            fields.center, fields.center_column, features, names_of(fields.leave_out), fields.for_,
            fields.mechanism_name, fields.epsilon, fields.delta,
        )  # fmt: skip

    @property
    def asked(self) -> bool:
        """Tells whether a center of features is asked for, which is then no default."""
        return self.given not in (None, NO_CENTER) or self.features is not None

    @property
    def kind(self) -> str:
        """Kind of the center, where one is made: linear by default, which leaves labels most of epsilon.

        With cells, or marginal sums where these are better, labels say what the features of the log say and nothing
        else: that is for recipients who have no others.
        """
        return self.given or (CELL_CENTER if self.purpose == MODELS_OF_LOG else LINEAR_CENTER)

    @property
    def asked_of_classes(self) -> bool:
        """Tells whether a center of classes is made whatever their histogram says."""
        return self.asked or self.column is not None

    def makes(self, label: Label) -> bool:
        """Decides whether a center is made of features, if there are any: of numbers by default for auto.

        It is not where no center was asked for, or it is a column of the input; nor, by default, where the label domain
        is not an even grid of at least five labels; nor where a mechanism file says which center there is.
        """
        column, mechanism = label.column, label.mechanism
        if mechanism.fitted is not None:
            return False
        if column.classes is not None:
            return self._makes_of_classes(column.classes)
        if self.given == NO_CENTER or (not self.asked and (self.column is not None or mechanism.name != AUTO)):
            return False
        if self.asked:
            with field_errors("{center}: {problem}"):
                check_even(column.labels)
            return True
        return len(column.domain) >= _LEAST_LABELS and is_even(column.labels)

    def _makes_of_classes(self, classes: LabelClasses) -> bool:
        """Decides whether classes may be drawn from a center of features, if there are any: for models by default.

        Not where no center was asked for, or a mechanism; nor, by default, at an epsilon at which randomized response
        is better (docs/mechanisms/center.md), or for more classes than centers support. The released histogram decides
        whether one that was not asked for is made (`ClassSums`).
        """
        if self.given == NO_CENTER:
            return False
        if self.given in (LINEAR_CENTER, MARGINAL_CENTER):
            raise FieldError(
                "{center} {kind} is for labels that are numbers; that of classes is {center} cells", kind=self.given
            )
        refusals = {
            "{center} draws classes by itself: leave out {mechanism} and {for}": (
                self.mechanism not in (None, AUTO) or self.purpose == "labels"
            ),
            "{center}: at most {most} classes can have one, not {count}": len(classes) > MOST_CLASSES,
            "{center} of classes is pure DP: leave out {delta}": self.delta is not None,
        }
        refusal = next((text for text, applies in refusals.items() if applies), None)
        if refusal is not None and self.asked_of_classes:
            raise FieldError(refusal, most=MOST_CLASSES, count=len(classes))
        most = CLASS_CENTER_EPSILON if len(classes) > 2 else TWO_CLASSES_EPSILON
        by_default = self.purpose == MODELS_OF_LOG or (self.epsilon or 0.0) <= most
        return refusal is None and (self.asked_of_classes or by_default)

    def applied(self, label: Label, table: FeatureTable) -> Label:
        """Adds a center of features to a label, if one is made: its features, and the name of the new column."""
        names = self._names_of(label.column, table) if self.makes(label) else ()
        if not names:
            return label
        name, classes = self.new_column(label), label.column.classes is not None
        if name in (*table.schema.names, label.name):
            what, kind = ("probabilities", "") if classes else ("centers", " and {center} {kind}")
            raise FieldError(
                f"{table.field or '{source}'} has a column {{name!r}}: name the new column of {what} with "
                f"{{center_column}}{kind}, or leave that column out",
                source=table.source,
                name=name,
                kind=self.kind,
            )
        return self.around(label, names)

    def new_column(self, label: Label) -> str:
        """Name of the column of centers, or of the probabilities of classes."""
        return self.column or f"{label.name}_{'center' if label.column.classes is None else 'probabilities'}"

    def around(self, label: Label, names: tuple[str, ...]) -> Label:
        """Gives a label a center of these features, in a new column."""
        column = dataclasses.replace(label.column, center=self.new_column(label))
        cells, most = self.kind == CELL_CENTER, MOST_SAMPLE
        # For the features of the log, public facts of the records choose between both.
        marginals = self.kind == MARGINAL_CENTER or (cells and self.given is None)
        if column.classes is not None:
            cells, marginals, most = self.asked_of_classes, False, MOST_CLASS_SAMPLE
        features = CenterFeatures(names, column.id_column, cells, most, self.features is None, marginals)
        return dataclasses.replace(label, column=column, features=features)

    def _names_of(self, column: LabelColumn, table: FeatureTable) -> tuple[str, ...]:
        """Names the features of a center.

        They are those that are named, or all columns of numbers and texts but label, id, unit, that of the filter and,
        once their values are seen, those that identify records; none if there are none by default.
        """
        names = self._feature_names(column, table)
        if names:
            return names
        if self.asked:
            raise FieldError(
                "{center} {kind}: {file} has no column of numbers or texts besides the label",
                kind=self.kind,
                file=table.source,
            )
        LOGGER.info("no center: %s has no column of numbers or text besides the label", table.source)
        return ()

    def _feature_names(self, column: LabelColumn, table: FeatureTable) -> tuple[str, ...]:
        schema = table.schema
        if self.features is None:
            unused = {*column.private, column.id_column, *column.unit.columns, table.where}
            unused |= {*self.left_out}
            return tuple(field.name for field in schema if is_feature(field.type) and field.name not in unused)
        for name in self.features:
            if name in column.private:
                raise FieldError("{center_features} must not name the label: centers are released as they are")
            if name in self.left_out:
                raise FieldError(
                    "{center_features} and {leave_out} name {name!r}: centers are released, and say what they are made "
                    "of",
                    name=name,
                )
            if name not in schema.names:
                raise FieldError(
                    "{center_features}: {file} has no column {name!r}{seen}; it has: {names}{meant}",
                    file=table.source,
                    seen=table.seen,
                    name=name,
                    names=listed(schema.names),
                    meant=did_you_mean(name, schema.names),
                )
            kind = schema.field(name).type
            if not is_feature(kind):
                raise FieldError(
                    "{center_features}: {name!r} holds {kind}, neither numbers nor text: leave it out",
                    name=name,
                    kind=kind,
                )
        return tuple(dict.fromkeys(self.features))
