"""Public interface of the package: the names in `labeldp`, the libraries that importing it loads, and its version."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import griffe
import labeldp
import labeldp.mechanisms
import labeldp.transforms
import pytest


@pytest.mark.parametrize("name", labeldp.__all__)
def test_every_public_name_is_importable_and_documented(name: str) -> None:
    value = getattr(labeldp, name)
    if isinstance(value, type) or callable(value):
        text = value.__doc__
        assert text
        assert not text.startswith(f"{name}("), "only the text that dataclasses make"
        assert griffe.Docstring(text).parse("google")


@pytest.mark.parametrize("package", [labeldp.mechanisms, labeldp.transforms], ids=lambda package: package.__name__)
def test_names_of_the_two_packages(package: Any) -> None:
    assert all(hasattr(package, name) for name in package.__all__)
    shared = set(labeldp.__all__) & set(package.__all__)
    assert all(getattr(labeldp, name) is getattr(package, name) for name in shared)
    # The names that `labeldp` leaves out are for code within the project.
    assert set(package.__all__) - shared <= {"NoiseBinding", "CountUniqueIds"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = labeldp.nothing
    assert set(labeldp.__all__) <= set(dir(labeldp))


def test_importing_the_package_loads_no_library() -> None:
    heavy = "{'numpy', 'scipy', 'apache_beam', 'pyarrow', 'tensorflow'}"
    script = (
        f"import sys, labeldp; print(sorted({heavy} & set(sys.modules))); "
        f"labeldp.Prior; print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "['numpy', 'scipy']"]


def test_one_version() -> None:
    command = [sys.executable, "-m", "labeldp", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"labeldp {labeldp.__version__}\n"
    assert version("labeldp") == labeldp.__version__
