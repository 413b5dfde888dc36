"""`labeldp audit --data` of whole releases: correct ones pass, each planted defect fails."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main

from tests.audit.written_files import plant, shards, write_shard

FILES = "files        every byte of the Parquet shards is the one that pyarrow writes for their records\n"


def problems(folder: Path) -> tuple[str, ...]:
    return audit_path(str(folder), data=True).problems


def test_a_correct_release_passes(release, capsys):
    for output in ("parquet", "tfrecord", "gzip"):
        folder = release(f"days to {output}")
        assert main(["audit", str(folder), "--data"]) == 0
        out = capsys.readouterr().out
        assert (FILES in out) == (output == "parquet")
        *_, data, parts, distribution, verdict = out.replace(FILES, "").splitlines()
        assert data.startswith("data         3000 records in 2 shards: every label is an output")
        assert re.fullmatch(r"parts        \d+ counts of outputs .*: evidence 10\^-?[0-4]\.\d, bound 10\^6\.3", parts)
        assert distribution.startswith("distribution 8 sets of outputs agree with the channel and the noised histogram")
        assert distribution.endswith("a correct release fails this with a probability of at most 1e-06")
        assert verdict == "PASS"
        assert audit_path(str(folder)).data_lines == ()


def test_lists_of_one_float_are_compared_as_float32(copied):
    folder = copied("days to parquet")
    for path in shards(folder):
        table = pq.read_table(path, columns=["id", "days"])
        labels = table["days"].to_numpy().astype(np.float32)
        column = pa.LargeListArray.from_arrays(pa.array(np.arange(len(labels) + 1)), pa.array(labels))
        write_shard(table.set_column(1, "days", column), path)
    columns = [{"name": "id", "type": "int64"}, {"name": "days", "type": str(column.type)}]
    plant(folder, "release", {"output.columns": columns})
    assert problems(folder) == ()


def test_unbiased_outputs_with_randomized_rounding_and_apply(base, log, invoke, command, tmp_path, capsys):
    """Outputs that are no float32, and the two halves of a job: `apply` to the log of `fit`, and to another one."""
    own, fitted, other = base("days to parquet").flags, tmp_path / "m.json", tmp_path / "other.parquet"
    fit = {key: value for key, value in own.items() if key not in ("num_shards", "output_format")}
    invoke(command("fit", fit | {"mechanism": "unbiased", "label_step": 2, "mechanism_file": fitted})).ok()
    pq.write_table(pq.read_table(log("kinds")).slice(0, 1000), other)
    keys = ("input", "input_format", "label", "noise_key_file", "num_shards", "id_column")
    for name, source in (("same", own["input"]), ("other", other)):
        flags_of_apply = {key: own[key] for key in keys} | {"mechanism_file": fitted, "input": source}
        invoke(command("apply", flags_of_apply | {"output": tmp_path / name})).ok()
        assert main(["audit", str(tmp_path / name), "--data"]) == 0
        distribution = capsys.readouterr().out.splitlines()[-2]
        assert ("sets of outputs agree" in distribution) == (name == "same")
    assert distribution.startswith("distribution not checked: the prior was counted from other records")


def test_a_public_prior_says_nothing_about_the_records(copied):
    folder = copied("days to parquet")
    members = {f"prior.{member}": ... for member in ("release", "counts", "records")}
    plant(folder, "mechanism", {**members, "prior.epsilon": 0.0})
    # Without noise in the prior, its ends are no estimates.
    kept = json.loads((folder / "release.json").read_text())["warnings"]
    kept = [name for name in kept if not name.endswith("_end")]
    plant(folder, "release", {"prior_epsilon": 0.0, "warnings": kept})
    audit = audit_path(str(folder), data=True)
    assert audit.problems == ()
    assert audit.data_lines[-1].startswith("distribution not checked: the prior is public")
