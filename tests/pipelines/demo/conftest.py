"""Limits BLAS to one thread: with more, some of these tests take twice the CPU time."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Limits the threads of the libraries that are loaded."""
    with threadpool_limits(limits=1):
        yield
