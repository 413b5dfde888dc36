"""What all tests share: warnings are errors, save those that other projects raise about themselves on import."""

import pytest

_THIRD_PARTY_WARNINGS = (
    # Google's libraries announce, on import, the end of a Python version.
    "ignore:You are using a Python version:FutureWarning:google.api_core._python_version_support",
)


def pytest_configure(config: pytest.Config) -> None:
    """Adds to the filters of pyproject.toml."""
    for line in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
