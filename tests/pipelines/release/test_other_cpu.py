"""A job that is run again on a machine with another CPU releases the same bytes, and its charges are the same.

The second machine has an empty ledger, so it cannot take the mechanism of the first release.
"""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

OTHER_CPU = {
    "OPENBLAS_CORETYPE": "Prescott",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3",
}


@pytest.mark.parametrize("mechanism", ["unbiased", "laplace"])
def test_another_cpu_gives_the_same_bytes_and_costs_nothing(
    mechanism: str, job: Any, spawn: Any, invoke: Any, outputs: Path, tree: Any, spent: Any, environment: Any
) -> None:
    invoke(job(mechanism=mechanism, epsilon_cap=1)).ok()
    once = spent(outputs)
    with mock.patch.dict(environment, OTHER_CPU):
        spawn(job(mechanism=mechanism, output=outputs / "again", ledger=outputs / "elsewhere")).ok()

    assert tree(outputs / "again") == tree(outputs / "released")
    with (outputs / "labeldp_ledger.jsonl").open("a") as ledger:
        ledger.write((outputs / "elsewhere").read_text())
    assert spent(outputs) == once
