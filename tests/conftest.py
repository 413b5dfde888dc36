"""Configuration of all tests: warnings are errors, except warnings of other projects about themselves on import.

The examples that hypothesis tries are the same in every run; LABELDP_EXPLORE=1 tries new ones.
"""

import os

import pytest
from hypothesis import settings

_THIRD_PARTY_WARNINGS = (
    # Google's libraries warn on import about the end of support for a Python version.
    "ignore:You are using a Python version:FutureWarning:google.api_core._python_version_support",
)

settings.register_profile("fixed", derandomize=True)
settings.load_profile("default" if os.environ.get("LABELDP_EXPLORE") else "fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Adds to the filters of pyproject.toml."""
    for line in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
