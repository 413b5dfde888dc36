"""Fields of a release as a user asks for them, before they are checked: from flags, YAML or keywords, one object.

A field has the name of its flag. Where a flag takes text with commas, Python may give a sequence or a mapping. None is
for what is not given, and stands for the default that `--help` names.

Values that fields can have are those of mechanisms and transforms, which load numpy, scipy or Beam; the help lists them
without. `tests/pipelines/flags` compares both.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from ..errors import FieldError, did_you_mean, one_line

INPUT_FORMATS = ("tfrecord", "parquet", "csv", "orc")
CSV_TYPES = ("int64", "uint64", "float64", "string", "date", "timestamp")
DEFAULT_DELIMITER = ","
DEFAULT_ENCODING = "utf-8"
DEFAULT_DECIMAL = "."
PARTITIONS = ("hive", "none")
"""Treatment of folders named KEY=VALUE: columns of the records below them, or not."""
MISSING_COLUMNS = ("error", "null")
NULL_COLUMNS = "null"
"""Value of `--missing_columns` for files of which some lack columns of others."""
OUTPUT_FORMATS = ("tfrecord", "parquet")
COMPRESSIONS = ("none", "gzip")
ROUNDINGS = ("nearest", "randomized")
KEY_MODES = ("owner", "group")
"""Who may read the noise key file: its owner, or a group of the process as well."""
LOSSES = ("squared", "absolute", "poisson")
DEFAULT_LOSS = "squared"
AUTO = "auto"
CENTERS = ("cells", "linear", "none")
LINEAR_CENTER, CELL_CENTER = "linear", "cells"
NO_CENTER = "none"
"""Value of `--center` for labels without a center."""
MODELS_OF_LOG = "log_features"
"""Purpose of a release for recipients who train on the features of the log alone."""
PURPOSES = ("models", MODELS_OF_LOG, "labels")
MODELS = ("linear", "trees", "network")

MECHANISMS_BY_PURPOSE = {
    "training a model": ("unbiased", "bias_limited", "debiased_rr"),
    "least error of each label": ("rr_on_bins",),
    "approximate DP": ("gaussian",),
    "few outputs": ("quantizer", "optm", "rqm", "erm", "mvu"),
    "comparison with the literature": (
        "unbiased_grid", "rr", "rr_top_k", "rp_with_prior", "laplace", "staircase", "exponential",
    ),
}  # fmt: skip
"""Names of the mechanisms, by what they are for."""
MECHANISMS = tuple(name for names in MECHANISMS_BY_PURPOSE.values() for name in names)
MECHANISM_LIST = "; ".join(f"{purpose}: {', '.join(names)}" for purpose, names in MECHANISMS_BY_PURPOSE.items())
"""Text for the help of `--mechanism`."""
STORE_FLAGS = "--s3_endpoint_url, --s3_region_name, ... for S3; --project, --no_auth, ... for Google Cloud Storage"
"""Flags of object stores, for the help."""

Names = str | Sequence[str]
Classes = str | Sequence[Any] | Mapping[str, Any]
Pairs = str | Mapping[str, Any]
Number = str | float
# Rounding, loss and mechanism are looked up by the objects that they name.
_CHOICES = {
    "input_format": INPUT_FORMATS,
    "partitions": PARTITIONS,
    "missing_columns": MISSING_COLUMNS,
    "purpose": PURPOSES,
    "center": CENTERS,
    "output_format": OUTPUT_FORMATS,
    "compression": COMPRESSIONS,
    "noise_key_mode": KEY_MODES,
}
_KINDS = ((bool, "true or false"), (int, "a whole number"), (float, "a number"), (str, "text"))
_SECRET = ("noise_key_file", "ledger", "sign")
"""Fields that may hold a key or a password by mistake: their values are not quoted."""
_CLASSES = ("label_classes", "other_class")
"""Fields of classes, which are text, integers or booleans."""
# Beyond it, a float stands for several integers.
_LARGEST_WHOLE = 2**53
_LONGEST_QUOTE = 200
_NAMES = {"purpose": "for"}
"""Names of fields in messages, where Python needs another one for the attribute."""

F = TypeVar("F", bound="Fields")


@dataclass(frozen=True)
class Fields:
    """Fields of a release. `labeldp privatize --help` says what each of them means.

    Numbers of the label grid are kept as text: 0.1 is exactly one tenth. `label_values` is a file, or the labels;
    `label_classes` a file, or the classes; with several labels, those of each by its name.
    """

    label: Names
    input: str | None = None
    input_format: str | None = None
    csv_types: Pairs | None = None
    csv_delimiter: str = DEFAULT_DELIMITER
    csv_encoding: str = DEFAULT_ENCODING
    csv_decimal: str = DEFAULT_DECIMAL
    csv_thousands: str | None = None
    csv_columns: Names | None = None
    csv_newlines_in_values: bool | None = None
    partitions: str = PARTITIONS[0]
    missing_columns: str = MISSING_COLUMNS[0]
    where: str | None = None
    id_column: str | None = None
    max_unusable_fraction: float = 0.001
    label_min: Number | None = None
    label_max: Number | None = None
    label_step: Number | None = None
    label_values: str | Sequence[float] | None = None
    label_classes: Classes | None = None
    other_class: str | Mapping[str, Any] | None = None
    missing_label: Number | None = None
    rounding: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    prior_epsilon: float | None = None
    # It may hold a password.
    ledger: str | None = field(default=None, repr=False)
    epsilon_cap: float | None = None
    delta_cap: float | None = None
    cap_window: str | None = None
    noise_key_file: str | None = None
    noise_key_mode: str | None = None
    unit_column: str | None = None
    max_records_per_unit: int | None = None
    purpose: str | None = None
    mechanism: str | None = None
    mechanism_parameters: Pairs | None = None
    loss: str | None = None
    mechanism_file: str | None = None
    center: str | None = None
    center_column: str | None = None
    center_features: Names | None = None
    output: str | None = None
    output_table: str | None = None
    sign: str | None = None
    output_format: str | None = None
    num_shards: int | None = None
    partition_output: Names | None = None
    compression: str = COMPRESSIONS[0]
    validate: bool | None = None
    schema: str | None = None
    dry_run: bool | None = None

    @classmethod
    def of(cls: type[F], values: Mapping[str, Any]) -> F:
        """Takes the fields from values by attribute; other values are passed over, and None is the default.

        Raises FieldError if a value has the wrong type, or is none of the choices.
        """
        kinds = _kinds(cls)
        found = {name: values[name] for name in kinds if values.get(name) is not None}
        for name in found:
            try:
                found[name] = _typed(name, found[name], kinds[name])
            except (OverflowError, ValueError):
                raise FieldError(f"{{{_field(name)}}} is out of the range of floats") from None
            if name in _CHOICES and found[name] not in _CHOICES[name]:
                known = _CHOICES[name]
                raise FieldError(
                    f"{{{_field(name)}}}: unknown value {{value}}; known: {{known}}{{meant}}",
                    value=_quoted(found[name]),
                    known=", ".join(known),
                    meant=did_you_mean(found[name], known),
                )
        missing = next((f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING), None)
        if missing is not None and missing not in found:
            raise FieldError(f"{{{missing}}} is missing")
        return cls(**found)

    @property
    def classes(self) -> dict[str, Any]:
        """The fields of classes."""
        return {name: getattr(self, name) for name in _CLASSES}

    @classmethod
    def of_keywords(cls: type[F], keywords: Mapping[str, Any], owner: str) -> F:
        """Takes the fields from the keyword arguments of a class of that name, as `of` does.

        Raises ValueError if there is no such field.
        """
        attributes = {keyword: "purpose" if keyword == "for_" else keyword for keyword in keywords}
        for keyword, name in attributes.items():
            if name not in _kinds(cls) or keyword == "purpose":
                raise ValueError(f"{owner} has no parameter {keyword!r}: see labeldp privatize --help")
        return cls.of({attributes[keyword]: value for keyword, value in keywords.items()})


def _field(name: str) -> str:
    return _NAMES.get(name, name)


@functools.lru_cache
def _kinds(cls: type) -> dict[str, tuple[Any, ...]]:
    """Types that the values of each attribute can have."""
    hints, found = typing.get_type_hints(cls), {}
    for each in dataclasses.fields(cls):
        hint = hints[each.name]
        union = typing.get_origin(hint) in (Union, types.UnionType)
        kinds = typing.get_args(hint) if union else (hint,)
        found[each.name] = tuple(typing.get_origin(kind) or kind for kind in kinds if kind is not type(None))
    return found


def _typed(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value as one of the types of its field; NumPy's numbers and paths become Python's own numbers and text."""
    if name in _CLASSES and not isinstance(value, Mapping):
        classes = _class_texts(value, kinds)
        if classes is not None:
            return classes
    elif str in kinds:
        if name == "missing_label" and _class_text(value) is not None:
            return _class_text(value)
        if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        if float in kinds and isinstance(value, numbers.Real) and not isinstance(value, bool):
            # The text of a float is the shortest decimal that it is read from.
            return str(value)
    elif isinstance(value, bool) or bool in kinds:
        if bool in kinds and isinstance(value, bool):
            return value
    elif int in kinds and isinstance(value, numbers.Integral):
        return int(value)
    elif float in kinds and isinstance(value, numbers.Real):
        return float(value)
    if Mapping in kinds and isinstance(value, Mapping):
        return value
    wanted = next(text for kind, text in _KINDS if kind in kinds)
    if Sequence in kinds:
        numeric = name == "label_values"
        if _is_sequence(value) and len(value):
            items = tuple(value)
            if all(map(_is_number if numeric else _is_name, items)):
                return tuple(map(float, items)) if numeric else items
        wanted = "a file, or a list of numbers" if numeric else "text, or a list of texts"
        if name in _CLASSES:
            wanted = "a file, or a list of texts, integers or booleans"
    elif Mapping in kinds:
        wanted = "text, or a mapping"
    if name in _SECRET:
        raise FieldError(f"{{{name}}} must be {{wanted}}", wanted=wanted)
    raise FieldError(f"{{{_field(name)}}} must be {{wanted}}, not {{value}}", wanted=wanted, value=_quoted(value))


def _class_texts(value: Any, kinds: tuple[Any, ...]) -> str | tuple[str, ...] | None:
    """A class or several as text: whole numbers in decimal digits, booleans as false and true; None for others."""
    if Sequence not in kinds or not _is_sequence(value):
        return os.fspath(value) if isinstance(value, os.PathLike) else _class_text(value)
    texts = tuple(map(_class_text, value))
    return None if None in texts else tuple(text for text in texts if text is not None)


def _class_text(value: Any) -> str | None:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_WHOLE:
        value = int(value)
    return str(value) if isinstance(value, str | int) else None


def _is_sequence(value: Any) -> bool:
    # Also an array or a column, of one dimension.
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        return False
    return isinstance(value, Sequence) or getattr(value, "ndim", None) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _quoted(value: Any) -> str:
    text = one_line(repr(value))
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def names_of(value: Names | None) -> tuple[str, ...]:
    """Names in a text with commas, or in a sequence; none for None."""
    if value is None:
        return ()
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


def shown(value: Names) -> str:
    """Names as they are written on the command line."""
    return value if isinstance(value, str) else ",".join(value)


def pairs_of(value: Pairs | None, form: str, where: str, **values: Any) -> dict[str, Any]:
    """Pairs in a text NAME=VALUE,..., or in a mapping; none for None.

    `form` is that text as messages show it, after `where`, the beginning of a message with its values. Raises
    FieldError if the text is malformed, or a name is there twice.
    """
    if value is None:
        return {}
    if not isinstance(value, str):
        if not all(map(_is_name, value)):
            raise FieldError(f"{where} must have names as keys", **values)
        return dict(value)
    found: dict[str, Any] = {}
    for pair in value.split(","):
        name, equals, text = pair.partition("=")
        if not (name and equals and text) or name in found:
            raise FieldError(f"{where} takes {form},..., each name once, not {{pair!r}}", pair=pair, **values)
        found[name] = text
    return found
