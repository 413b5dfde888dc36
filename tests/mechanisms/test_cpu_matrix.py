"""Tests that a mechanism file does not depend on the CPU, the kernels of BLAS and numpy, or the number of threads.

The variables make OpenBLAS, numpy and the C library choose the code that they would choose on another CPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOLVE = Path(__file__).with_name("solve_everything.py")
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
NO_AVX = f"{AVX512} AVX2 FMA3 F16C AVX SSE42 SSE41 POPCNT SSSE3"
NO_FMA = "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-AVX2_Usable,-FMA_Usable"
MACHINES = {
    "Prescott, one thread, no AVX": {
        "OPENBLAS_CORETYPE": "Prescott",
        "OPENBLAS_NUM_THREADS": "1",
        "NPY_DISABLE_CPU_FEATURES": NO_AVX,
        "GLIBC_TUNABLES": NO_FMA,
    },
    "Nehalem, no FMA in the C library": {"OPENBLAS_CORETYPE": "Nehalem", "GLIBC_TUNABLES": NO_FMA},
    "Haswell, no AVX512": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": AVX512},
    "Zen, four threads": {"OPENBLAS_CORETYPE": "Zen", "OPENBLAS_NUM_THREADS": "4"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
}
# One variable at a time, for the table that this file prints as a program.
SINGLE = {
    f"{name}={value}": {name: value}
    for name, values in {
        "OPENBLAS_CORETYPE": ("Prescott", "Nehalem", "Haswell", "Zen", "SkylakeX"),
        "OPENBLAS_NUM_THREADS": ("1", "2", "4"),
        "NPY_DISABLE_CPU_FEATURES": (AVX512, NO_AVX),
        "GLIBC_TUNABLES": (NO_FMA,),
    }.items()
    for value in values
}


def hashes(machine: dict[str, str], *arguments: str) -> dict[str, str]:
    """Solves on a machine, without the variables that this process was started with.

    Skips the test if this CPU lacks the instructions of the kernels that are asked for.
    """
    inherited = {
        name: value for name, value in os.environ.items() if not any(name in each for each in MACHINES.values())
    }
    done = subprocess.run(
        [sys.executable, str(SOLVE), *arguments], env=inherited | machine, capture_output=True, text=True, check=False
    )
    if machine and done.returncode == -signal.SIGILL:
        pytest.skip(f"this CPU cannot run the kernels of {machine}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def native() -> dict[str, str]:
    return hashes({})


@pytest.mark.parametrize("machine", MACHINES)
def test_mechanism_files_are_the_same_on_every_cpu(machine: str, native: dict[str, str]):
    found = hashes(MACHINES[machine])
    assert [request for request in native if found[request] != native[request]] == []


def test_every_mechanism_is_solved(native: dict[str, str]):
    from labeldp.mechanisms import MECHANISMS

    assert {request.split(" ")[0] for request in native} == {*MECHANISMS, "linear_center"}


if __name__ == "__main__":
    # All requests, as a table: the number of mechanism files that differ, by machine and mechanism.
    expected = hashes({}, "--many")
    print(f"{len(expected)} requests:", Counter(request.split(" ")[0] for request in expected))
    for title, variables in (MACHINES | SINGLE).items():
        other = hashes(variables, "--many")
        differ = Counter(request.split(" ")[0] for request in expected if other[request] != expected[request])
        print(f"{title}: {differ.total()} differ", dict(differ), flush=True)
