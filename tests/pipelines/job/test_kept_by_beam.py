"""A command makes Beam keep what it would compute again for every transform."""

from pathlib import Path
from typing import Any

import pytest


def test_a_job_parses_its_options_and_reads_signatures_few_times(
    job: Any, invoke: Any, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, 600 parsers of command lines are built, and 16,000 signatures read, which takes a second."""
    import inspect

    from apache_beam.options.pipeline_options import PipelineOptions

    invoke(job()).ok()
    made, read = [], []
    init, signature = PipelineOptions.__init__, inspect.signature
    monkeypatch.setattr(PipelineOptions, "__init__", lambda *args, **named: made.append(1) or init(*args, **named))
    monkeypatch.setattr(inspect, "signature", lambda *args, **named: read.append(1) or signature(*args, **named))

    invoke(job(output=outputs / "second")).ok()

    assert 0 < len(made) < 60
    assert 0 < len(read) < 1_000
