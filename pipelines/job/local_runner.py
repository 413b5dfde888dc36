"""Beam's local runner, with stages in an order in which every side input is complete before it is read."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

from apache_beam.runners.portability.fn_api_runner import FnApiRunner


class LocalRunner(FnApiRunner):
    """FnApiRunner, which opens no port, with each stage after those that it must follow.

    Beam sorts its stages over all that read or write a collection, so a reader can come before the writer (seen in
    Beam 2.77). The runner then takes the reader for the stage that fills a side input, and an empty one is read in
    its place: a bound of units would leave nothing out. Whether that happens depends on addresses in memory; it was
    seen where no stages are fused. It can go once `translations.sort_stages` looks for writers alone.
    """

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Makes the stages as FnApiRunner does, and sorts them."""
        context, stages = super().create_stages(pipeline_proto)
        known = frozenset(stages)
        before = {stage: (stage.must_follow & known) - {stage} for stage in stages}
        return context, list(TopologicalSorter(before).static_order())
