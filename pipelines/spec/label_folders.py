"""Names of files in a release, and folders of its labels if there are several. Needs neither Beam nor pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ..errors import one_line

LABELS_NAME = "labels"
"""Folder of a release of several labels, with a folder for each of them."""
DATA_OF_LABEL = "../../data"
"""The shards, as seen from the folder of a label."""


def label_folders(labels: Sequence[str]) -> list[str]:
    """Folder of each label in a release, with its mechanism and manifest.

    Paths are below the release: labels/NAME with the name as in a URL; the release itself, "", for one label.
    """
    if len(labels) == 1:
        return [""]
    # "." and ".." would be other folders.
    return [f"{LABELS_NAME}/{quote(label, safe='').replace('.', '%2E')}" for label in labels]


def several_labels(path: str, labels: Sequence[str]) -> str:
    """Error text for commands that take one label: the release has several; names their folders.

    `path` is the release, as it was named.
    """
    folders = ", ".join(one_line(folder) for folder in label_folders(labels))
    return f"{path} holds {len(labels)} labels: name the folder of one of them below it, of {folders}"


MANIFEST_NAME = "release.json"
DATA_NAME = "data"
"""Folder of the shards."""
BY_PLACE = "file and row"
"""In place of an id column, what records are named by."""


CENTER_NAME = "center.json"


SIGNATURE_NAME = "signature.json"
VALIDATION_NAME = "validation"
FEATURE_STATISTICS_NAME = "feature_stats.pb"
OUTPUT_STATISTICS_NAME = "output_stats.pb"
SCHEMA_NAME = "schema.pbtxt"
ANOMALIES_NAME = "anomalies.pbtxt"
VALIDATION_FILES = FEATURE_STATISTICS_NAME, OUTPUT_STATISTICS_NAME, SCHEMA_NAME, ANOMALIES_NAME
"""Files in the folder of the validation."""
