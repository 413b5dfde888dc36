"""Target of whole jobs: `privatize` on mutated input files of every format, on the local runner."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from commands_in_process import checked
from file_targets import empty_folder
from format_targets import csvs, framings, parquet_files, wires
from harness import Case, Target
from hypothesis import strategies as st
from parquet_process import ParquetProcess
from references import records_of
from seeds import compressed, job, log, release, workspace


@st.composite
def _inputs(draw: st.DrawFn) -> Case:
    """One or two input files of a format."""
    from labeldp.transforms.tfrecord.framing import frame

    format = draw(st.sampled_from(["csv", "parquet", "tfrecord"]))
    files = []
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        if format == "tfrecord":
            wire = draw(wires())
            content = draw(framings())["file"] if draw(st.booleans()) else frame(list(wire.values()))
        else:
            content = draw(csvs() if format == "csv" else parquet_files())["file"]
        files.append(content)
    gzip = format != "parquet" and draw(st.integers(0, 4)) == 0
    if gzip:
        files = [compressed(content) for content in files]
        cut = draw(st.sampled_from([None, None, -1, -5, 12]))
        files[0] = files[0][:cut]
    flags = {
        "output_format": draw(st.sampled_from(["tfrecord", "parquet"])),
        "id_column": draw(st.sampled_from([None, None, None, "f", "g"])),
        "where": draw(st.sampled_from([None, None, None, "f=1", "g=t1"])),
        "num_shards": draw(st.sampled_from([None, 1, 3])),
        # Mutated files mostly have a label or two that is none; a job that stopped there would test little.
        "max_unusable_fraction": draw(st.sampled_from([0, 0.9, 0.9, 0.9])),
        "validate": draw(st.integers(0, 19)) == 0,
        # auto refuses as few records as most of these files have.
        "mechanism": draw(st.sampled_from(["unbiased", "rr_on_bins", "auto"])),
    }
    parts = {f"{place}": content for place, content in enumerate(files)}
    return {**parts, "flags": json.dumps({"input_format": format, "gzip": gzip, **flags}).encode()}


def _check_job(case: Case) -> bool:
    flags: dict[str, Any] = json.loads(case["flags"])
    ending = ".gz" if flags.pop("gzip") else ""
    folder = empty_folder()
    inputs, outputs = folder / "in", folder / "outputs"
    inputs.mkdir()
    outputs.mkdir()
    for name, content in case.items():
        if name != "flags":
            # pyarrow might crash, and with it this process.
            if flags["input_format"] == "parquet" and not ParquetProcess.shared().accepts(content):
                return False
            (inputs / f"{name}{ending}").write_bytes(content)
    validate = ["--validate"] if flags.pop("validate") else []
    argv = job(
        "privatize", input=inputs / "*", output=outputs / "released", label_max=40_000, label_step=20_000, **flags
    )
    outcome = checked([*argv, *validate], workspace())
    released = outputs / "released"
    if outcome.code:
        assert not list(outputs.iterdir()), "a failed job left something"
        return False
    assert {path.name for path in outputs.iterdir()} == {"released", "labeldp_ledger.jsonl"}
    audit = checked(["audit", str(released)], workspace())
    assert audit.code == 0, audit.out
    check_release(released, flags["output_format"])
    return True


def check_release(released: Path, output_format: str) -> None:
    """Checks that shards hold as many records as the manifest says, and labels that the mechanism can give.

    Args:
      released: The output folder.
      output_format: Format of the shards.

    Raises:
      AssertionError: If they do not.
    """
    manifest = json.loads((released / "release.json").read_text())
    outputs = json.loads((released / "mechanism.json").read_text())["outputs"]
    found = {}
    for path in (released / "data").iterdir():
        if output_format == "parquet":
            column = pq.read_table(path).column("y")
            labels = [label[0] if isinstance(label, list) else label for label in column.to_pylist()]
        else:
            from references import parsed_examples

            examples = parsed_examples(records_of(path.read_bytes())[0])
            assert examples is not None
            labels = [features["y"][1][0] for features in examples]
        found[path.name] = len(labels)
        # Labels in a TFRecord are of single precision.
        assert all(min(abs(label - output) for output in outputs) <= 1e-6 * abs(label) for label in labels)
    assert found == manifest["shards"]
    assert sum(found.values()) == manifest["records"]


def job_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    log()
    release()
    return [Target("job", _inputs(), _check_job, 4, memory=6 << 30)]
