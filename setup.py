"""Packaging of labeldp: the folders of this repository under one import root.

`mechanisms/` is imported as `labeldp.mechanisms`, and so on: top-level names such as `transforms`
would collide with every Beam project that installs this.
"""

import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
VERSION = re.findall(r'^__version__ = "(.*)"$', (HERE / "labeldp" / "__init__.py").read_text(), re.MULTILINE)[0]
# The import root with what lies in it, the folders that are imported from it, and all packages in them.
FOLDERS = ["labeldp", "mechanisms", "transforms", "pipelines", "templates"]
PATHS = [init.parent.relative_to(HERE) for folder in FOLDERS for init in sorted((HERE / folder).rglob("__init__.py"))]
PACKAGES = {".".join(["labeldp", *path.parts]).replace("labeldp.labeldp", "labeldp"): path.as_posix() for path in PATHS}
# From Python 3.11 on, buffers are in the stable interface, so that one wheel serves all; interpreters without a global
# lock have none.
STABLE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
# From the lowest version (`make test-lowest-beam`) to that of the lock, with which all tests run.
BEAM = ">=2.69,<2.78"


setup(
    name="labeldp",
    version=VERSION,
    description="Label differential privacy for numbers and classes, as one Apache Beam job",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=["differential privacy", "label differential privacy", "apache beam", "regression", "ads measurement"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: Scientific/Engineering",
        "Topic :: Security :: Cryptography",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.15",
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    ext_modules=[
        # Optional: without a C compiler, TFRecords are refused, and the rest of labeldp works.
        Extension(
            "labeldp.transforms.tfrecord._wire",
            ["transforms/tfrecord/wire.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
            extra_compile_args=["-O3", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"],
            py_limited_api=STABLE,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    package_data={
        "labeldp": ["py.typed", "documents.json"],
        "labeldp.pipelines.publish": ["*.json"],
        "labeldp.report": ["*.j2", "*.css", "*.txt"],
        "labeldp.templates": ["yaml/*.yaml", "dataflow/*", "kubernetes/*.yaml", "flink/**/*", "spark/*"],
    },
    install_requires=[
        f"apache-beam{BEAM}",
        "cryptography>=39",
        "filelock>=3.12; sys_platform == 'win32'",
        "numpy>=1.26",
        "scipy>=1.11",
        "pyarrow>=14.0.1",
        "pyyaml>=5.1",
        "threadpoolctl>=3",
    ],
    extras_require={
        # Early releases hold pyarrow below 11, which has CVE-2023-47248; pyproject.toml says how the lock has one.
        "validation": [
            "tensorflow-data-validation>=1.16.1",
            "dill>=0.3.8",
        ],
        "evaluation": [
            "jinja2>=3.1",
            "scikit-learn>=1.4",
            "tqdm>=4.66",
        ],
        "completion": ["shtab>=1.6"],
        "aws": [f"apache-beam[aws]{BEAM}"],
        "gcp": [f"apache-beam[gcp]{BEAM}"],
        "ledger": [
            "dp-accounting>=0.6",
            "psycopg[binary]>=3.1",
            "sqlalchemy>=2.0",
        ],
        "yaml": [f"apache-beam[yaml]{BEAM}"],
        "iceberg": ["pyiceberg>=0.12"],
        "delta": ["deltalake>=1.6"],
        "dev": [
            "build",
            "filelock",  # of the test that hides what Windows lacks
            "flask",  # moto's server, without its other services
            "flask-cors",
            "gcp-storage-emulator",
            "google-crc32c>=1.5",  # of the reference for the compiled part
            "griffe",
            "hypothesis",
            "ipykernel",
            "jsonschema",
            "matplotlib",  # of the notebook
            "mkdocs-material",
            "mkdocstrings[python]",
            "nbclient",
            "moto[s3]",
            "opendp",
            "pandas",
            "polars",
            "pyiceberg[sql-sqlite]",
            "pyrefly",
            "pytest<9.2",  # pytest-xdist 3.8 groups tests by an attribute that 9.2 no longer has
            "pytest-xdist",
            "ruff",
            "uv",
        ],
    },
    entry_points={"console_scripts": ["labeldp = labeldp.pipelines.cli.commands:main"]},
)
