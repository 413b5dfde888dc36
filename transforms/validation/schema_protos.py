"""Schemas, statistics and anomalies: the messages of tensorflow_metadata, of the extra `tfx`, loaded where needed.

Schemas and anomalies are kept as text protos, statistics as bytes: that is how TFDV's own functions read them.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def _module(name: str) -> Any:
    return importlib.import_module(f"tensorflow_metadata.proto.v0.{name}_pb2")


def parse_schema(text: str) -> Any:
    """The Schema of a text proto. Raises ValueError, saying where, when it is none."""
    return _parse(text, _module("schema").Schema())


def parse_anomalies(text: str) -> Any:
    """The Anomalies of a text proto. Raises ValueError, saying where, when it is none."""
    return _parse(text, _module("anomalies").Anomalies())


def parse_statistics(content: bytes) -> Any:
    """The DatasetFeatureStatisticsList of its bytes. Raises ValueError when it is none."""
    from google.protobuf.message import DecodeError

    try:
        return _module("statistics").DatasetFeatureStatisticsList.FromString(content)
    except DecodeError:
        raise ValueError("not a DatasetFeatureStatisticsList") from None


def _parse(text: str, message: Any) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name} as a text proto, at line and column {error}") from None


def to_text(message: Any) -> str:
    """The message as a text proto."""
    from google.protobuf import text_format

    return text_format.MessageToString(message)


def without_feature(schema: str, name: str | None) -> str:
    """The schema without its feature of that name. Raises ValueError, saying where, when the text is no schema."""
    parsed = parse_schema(schema)
    for features in (parsed.feature, parsed.sparse_feature, parsed.weighted_feature):
        for feature in [feature for feature in features if feature.name == name]:
            features.remove(feature)
    return to_text(parsed)


def with_privatized_label(schema: str, label: str, outputs: np.ndarray) -> str:
    """The schema with the privatized label in it: one float for each record, in the range of the outputs.

    outputs: (m,) ascending, what a privatized label can be.
    """
    parsed = parse_schema(schema)
    feature = parsed.feature.add(name=label, type=_module("schema").FLOAT)
    feature.presence.min_fraction = 1
    feature.presence.min_count = 1
    feature.shape.dim.add(size=1)
    # Bounds are float32, and so are the labels in a TFRecord: rounded outwards.
    feature.float_domain.min = float(np.nextafter(np.float32(outputs[0]), np.float32(-np.inf)))
    feature.float_domain.max = float(np.nextafter(np.float32(outputs[-1]), np.float32(np.inf)))
    feature.annotation.comment.append("privatized: drawn at random under label differential privacy")
    return to_text(parsed)
