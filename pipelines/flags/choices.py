"""Values that flags can have, and their defaults.

They are those of the mechanisms and transforms, which load numpy, scipy or Beam: `tests/pipelines/flags` compares them.
"""

from __future__ import annotations

INPUT_FORMATS = ("tfrecord", "parquet", "csv")
CSV_TYPES = ("int64", "uint64", "float64", "string", "date", "timestamp")
DEFAULT_DELIMITER = ","
DEFAULT_ENCODING = "utf-8"
DEFAULT_DECIMAL = "."
PARTITIONS = ("hive", "none")
"""Treatment of folders named KEY=VALUE: columns of the records below them, or not."""
OUTPUT_FORMATS = ("tfrecord", "parquet")
COMPRESSIONS = ("none", "gzip")
ROUNDINGS = ("nearest", "randomized")
LOSSES = ("squared", "absolute", "poisson")
DEFAULT_LOSS = "squared"
AUTO = "auto"
CENTERS = ("linear", "none")
NO_CENTER = "none"
"""Value of `--center` for labels without a center."""
PURPOSES = ("models", "labels")
MODELS = ("linear", "trees", "network")

MECHANISMS_BY_PURPOSE = {
    "training a model": ("unbiased", "bias_limited", "debiased_rr"),
    "least error of each label": ("rr_on_bins",),
    "approximate DP": ("gaussian",),
    "few outputs": ("quantizer", "optm", "rqm", "erm", "mvu"),
    "comparison with the literature": (
        "unbiased_grid", "rr", "rr_top_k", "rp_with_prior", "laplace", "staircase", "exponential",
    ),
}  # fmt: skip
"""Names of the mechanisms, as in the table of the README."""
MECHANISMS = tuple(name for names in MECHANISMS_BY_PURPOSE.values() for name in names)
MECHANISM_LIST = "; ".join(f"{purpose}: {', '.join(names)}" for purpose, names in MECHANISMS_BY_PURPOSE.items())
"""Text for the help of `--mechanism`."""
STORE_FLAGS = "--s3_endpoint_url, --s3_region_name, ... for S3; --project, --no_auth, ... for Google Cloud Storage"
"""Flags of object stores, for the help."""
