"""A job that is run again on a machine with another CPU releases the same bytes, and its charges are the same.

The second machine has an empty ledger, so it cannot take the mechanism of the first release.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

OTHER_CPU = {
    "OPENBLAS_CORETYPE": "Prescott",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3",
}


# Runs the commands of standard input, one after the other.
COMMANDS = """
import json, sys
from labeldp.pipelines.cli.commands import main

for argv in json.load(sys.stdin):
    assert main(argv) == 0
"""


def test_another_cpu_gives_the_same_bytes_and_costs_nothing(
    job: Any, invoke: Any, outputs: Path, tree: Any, spent: Any, environment: dict[str, str]
) -> None:
    """One process runs the jobs of all mechanisms, as importing the libraries takes longer than a job."""
    folders = {mechanism: outputs / mechanism for mechanism in ("unbiased", "laplace")}
    once, again = {}, []
    for mechanism, folder in folders.items():
        folder.mkdir()
        invoke(job(mechanism=mechanism, output=folder / "released", epsilon_cap=1)).ok()
        once[mechanism] = spent(folder)
        again.append(job(mechanism=mechanism, output=folder / "again", ledger=folder / "elsewhere"))
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], input=json.dumps(again), env=environment | OTHER_CPU, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    for mechanism, folder in folders.items():
        assert tree(folder / "again") == tree(folder / "released"), mechanism
        with (folder / "labeldp_ledger.jsonl").open("a") as ledger:
            ledger.write((folder / "elsewhere").read_text())
        assert spent(folder) == once[mechanism]
