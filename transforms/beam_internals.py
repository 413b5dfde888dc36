"""Gaps of Beam, and its parts that are not public: all uses of them are here.

`tests/embedding/test_beam_internals.py` uses each as it is used here, so a release of Beam that changes it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import DoOutputsTuple, PCollection
from apache_beam.typehints.row_type import RowTypeConstraint


def typed_outputs(outputs: DoOutputsTuple, kinds: Mapping[str, Any]) -> dict[str, PCollection[Any]]:
    """Gives each output of a ParDo with several the type of its elements, by tag; the ParDo itself declares `object`.

    Beam has one type for all outputs of a stage: its coder would be that of other elements, and its type checks at run
    time (`--performance_runtime_type_check`) compare each output with the types of the consumers of all of them. So the
    only consumer is a stage that takes anything. It can go once Beam 2.69 does, if types of tags are then checked.
    """
    typed = {}
    for tag, kind in kinds.items():
        output = outputs[tag]
        output.element_type = kind
        name = outputs.producer.full_label.rpartition("/")[2]
        typed[tag] = output | f"{name} {tag}" >> beam.Map(_same).with_output_types(kind)
    return typed


def schema_fields(kind: Any) -> dict[str, Any] | None:
    """Types of the fields of rows by name, given the type of the rows; None for elements without a schema.

    Beam has no other way to list them with their Python types, which a schema of its own loses.
    """
    rows = RowTypeConstraint.from_user_type(kind) or kind
    return dict(rows._fields) if isinstance(rows, RowTypeConstraint) else None


def _same(element: Any) -> Any:
    return element
