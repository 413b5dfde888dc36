"""Base class of the public transforms, which shows in a runner's display data what a transform was made with."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.unit_bound import PrivacyUnit

_SHOWN = (
    "epsilon", "prior_epsilon", "mechanism", "id_column", "label_column", "other_labels", "private", "raw_labels",
    "num_shards", "compression",
)  # fmt: skip
"""Attributes that are shown as they are. All others are not: the key, paths, side inputs, earlier releases."""


class ShownTransform(beam.PTransform):
    """PTransform whose display data has names of columns, the domain, epsilon and the mechanism; no key and no data."""

    def display_data(self) -> dict[str, Any]:
        """Facts of the request, for the page of a runner that describes the step."""
        facts = {name: getattr(self, name, None) for name in _SHOWN}
        column, unit, budget = (getattr(self, name, None) for name in ("column", "unit", "budget"))
        randomizer, format = getattr(self, "randomizer", None), getattr(self, "format", None)
        if isinstance(column, LabelColumn):
            ends = f"{column.domain[0]:g} to {column.domain[-1]:g}, {len(column.domain):,} labels"
            facts |= {"label": column.name, "domain": ends, "rounding": column.rounding}
            facts |= {"id_column": column.id_column, "center": column.center}
            unit = column.unit
        elif isinstance(column, str):
            facts["label"] = column
        facts["unit"] = unit.column if isinstance(unit, PrivacyUnit) else unit
        if budget is not None:
            facts |= {"prior_epsilon": budget.prior, "label_epsilon": budget.labels}
        facts["mechanism"] = facts["mechanism"] or getattr(randomizer, "mechanism", None)
        facts["format"] = getattr(format, "name", None)
        return {
            # Beam holds no lists.
            name: DisplayDataItem(", ".join(value) if isinstance(value, (list, tuple)) else value)
            for name, value in facts.items()
            if value
        }
