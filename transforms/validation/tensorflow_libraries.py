"""Libraries of the extra `validation`, imported when they are needed: TensorFlow, and messages of tensorflow_metadata.

Schemas and anomalies are stored as text protos, statistics as bytes, because TFDV's own functions read them so.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ..arrow_values import is_text

_LONGEST_DESCRIPTION = 200
_PRIVATIZED = "privatized: drawn at random under label differential privacy"

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")


def import_quietly(name: str) -> ModuleType:
    """Imports a module without what Python and native libraries log meanwhile.

    Raises ImportError if it is not installed.
    """
    if name not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with warnings.catch_warnings(), _discarded_standard_error():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    return sys.modules[name]


@contextlib.contextmanager
def _discarded_standard_error() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as sink, contextlib.redirect_stderr(sink):
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tensorflow_metadata.proto.v0.{name}_pb2")


def parse_schema(text: str) -> Any:
    """Parses a text proto of Schema. Raises ValueError, which gives line and column, if it is not one."""
    return _parse(text, _module("schema").Schema())


def describe_anomalies(text: str) -> list[str]:
    """Describes anomalies in a text proto of TFDV's Anomalies; one line per anomaly, naming the feature.

    Raises ValueError, which gives line and column, if the text is not one.
    """
    anomalies = _parse(text, _module("anomalies").Anomalies())
    lines = [
        f"feature {'.'.join(info.path.step) or name}: {_one_line(info)}"
        for name, info in sorted(anomalies.anomaly_info.items())
    ]
    if anomalies.HasField("dataset_anomaly_info"):
        lines.append(f"all features: {_one_line(anomalies.dataset_anomaly_info)}")
    return lines


def _one_line(info: Any) -> str:
    text = " ".join(f"{info.short_description}: {info.description}".split())
    return text if len(text) <= _LONGEST_DESCRIPTION else text[: _LONGEST_DESCRIPTION - 3] + "..."


def parse_statistics(content: bytes) -> Any:
    """Parses a serialized DatasetFeatureStatisticsList. Raises ValueError if the bytes are not one."""
    from google.protobuf.message import DecodeError

    try:
        return _module("statistics").DatasetFeatureStatisticsList.FromString(content)
    except DecodeError:
        raise ValueError("not a DatasetFeatureStatisticsList") from None


def _parse(text: str, message: M) -> M:
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name} as a text proto, at line and column {error}") from None


def to_text(message: Message) -> str:
    """Text proto of a message."""
    from google.protobuf import text_format

    return text_format.MessageToString(message)


def without_features(schema: str, names: Sequence[str]) -> str:
    """Removes features from a schema, a text proto.

    Raises ValueError, which gives line and column, if it is not one.
    """
    parsed = parse_schema(schema)
    for features in (parsed.feature, parsed.sparse_feature, parsed.weighted_feature):
        for feature in [feature for feature in features if feature.name in names]:
            features.remove(feature)
    return to_text(parsed)


def with_privatized_label(schema: str, label: str, outputs: np.ndarray) -> str:
    """Adds the privatized label to a schema: one float per record, in the range of the outputs.

    `schema` is a text proto of Schema without the label, as is the result with it; `outputs` are the values of the
    privatized label, ascending, shape (m,), float64. Raises ValueError, which gives line and column, if the text is not
    a Schema.
    """
    return _with_float(schema, label, outputs, _PRIVATIZED)


def with_privatized_classes(schema: str, label: str, classes: LabelClasses, kind: pa.DataType) -> str:
    """Adds a privatized label of classes to a schema: one of them per record.

    `schema` is a text proto of Schema without the label, as is the result with it; `kind` is the type of the label's
    values. Raises ValueError, which gives line and column, if the text is not a Schema.
    """
    types = _module("schema")
    parsed, feature = _with_feature(schema, label, 1, _PRIVATIZED)
    if is_text(kind):
        feature.type = types.BYTES
        feature.string_domain.value.extend(classes.values)
    elif pa.types.is_floating(kind):
        feature.type = types.FLOAT
        feature.float_domain.min, feature.float_domain.max = min(classes.integers or ()), max(classes.integers or ())
    else:
        feature.type = types.INT
        numbers = [*map(int, (classes.booleans if pa.types.is_boolean(kind) else None) or classes.integers or ())]
        feature.int_domain.min, feature.int_domain.max = min(numbers), max(numbers)
        feature.int_domain.is_categorical = True
    return to_text(parsed)


def with_probabilities(schema: str, name: str, classes: int) -> str:
    """Adds the column of the probabilities of classes to a schema: as many floats per record, from 0 to 1.

    `schema` is a text proto of Schema without that column, as is the result with it. Raises ValueError, which gives
    line and column, if the text is not a Schema.
    """
    comment = "center: probabilities of the classes, predicted by a released model"
    parsed, feature = _with_feature(schema, name, classes, comment)
    feature.float_domain.min, feature.float_domain.max = 0.0, 1.0
    return to_text(parsed)


def with_center(schema: str, name: str, labels: np.ndarray) -> str:
    """Adds the column of a linear center to a schema: one float per record, in the range of the labels.

    `schema` is a text proto of Schema without that column, as is the result with it; `labels` is the label domain,
    ascending, shape (k,), float64. Raises ValueError, which gives line and column, if the text is not a Schema.
    """
    return _with_float(schema, name, labels, "center: predicted from the features by a released linear model")


def _with_float(schema: str, name: str, values: np.ndarray, comment: str) -> str:
    parsed, feature = _with_feature(schema, name, 1, comment)
    # Bounds are float32, as labels in a TFRecord are. They are rounded outwards.
    feature.float_domain.min = float(np.nextafter(np.float32(values[0]), np.float32(-np.inf)))
    feature.float_domain.max = float(np.nextafter(np.float32(values[-1]), np.float32(np.inf)))
    return to_text(parsed)


def _with_feature(schema: str, name: str, size: int, comment: str) -> tuple[Any, Any]:
    """The parsed schema, and a feature in it that each record has, of as many floats."""
    parsed = parse_schema(schema)
    feature = parsed.feature.add(name=name, type=_module("schema").FLOAT)
    feature.presence.min_fraction = feature.presence.min_count = 1
    feature.shape.dim.add(size=size)
    feature.annotation.comment.append(comment)
    return parsed, feature
