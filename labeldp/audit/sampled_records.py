"""Records of the public sample of a center's cells that have the features of given records.

`center.json` holds the codes of sampled records. A record that is removed from a release may be one of them, and then
its codes stay there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .center_predictions import CenterPredictions
from .class_center_audit import CLASS_CENTER
from .class_labels import ClassLabels
from .class_predictions import ClassPredictions
from .documents import read_center
from .release_files import folder_values
from .shard_columns import ShardReader


class SampleMatch(NamedTuple):
    """Records of a sample with the codes of given records, which other records may have as well.

    Attributes:
      found: Number of records of the sample.
      uncertain: Number of the given records whose codes depend on how a feature was rounded, and are not looked for.
      size: Number of records in the sample.
    """

    found: int
    uncertain: int
    size: int


def sampled_records(
    release: dict[str, Any], mechanism: dict[str, Any], data: Path, names: Iterable[str]
) -> SampleMatch | None:
    """Looks for the records of some shards in the sample of a release; None if its center has no sample.

    The shards lie in the folder `data` and may have fewer records than in the release, whose manifest and mechanism
    file passed their audits.
    """
    names = list(names)
    drawn = len(mechanism["classes"]["values"]) if CLASS_CENTER in mechanism else 0
    predictions = _predictions(mechanism, not all(name.endswith(".parquet") for name in names))
    if predictions is None:
        return None
    reader = ShardReader(
        release["label"],
        mechanism[CLASS_CENTER]["column"] if drawn else read_center(mechanism)["center.column"],
        predictions.numbers,
        predictions.categories,
        classes=ClassLabels(mechanism["classes"]["values"]) if drawn else None,
        drawn=drawn,
    )
    for name in names:
        for batch in reader.read(data / name, folder_values(name)):
            if isinstance(predictions, ClassPredictions):
                predictions.wrong(batch.features, batch.centers, batch.labels)
            else:
                predictions.wrong(batch.features, batch.centers)
    return _match(predictions)


def _predictions(mechanism: dict[str, Any], float32: bool) -> CenterPredictions | ClassPredictions | None:
    if CLASS_CENTER in mechanism:
        return ClassPredictions(mechanism, float32)
    return CenterPredictions(mechanism, float32) if "linear" in mechanism.get("center", {}) else None


def _match(predictions: CenterPredictions | ClassPredictions) -> SampleMatch | None:
    if isinstance(predictions, ClassPredictions):
        sample = predictions.sample
    else:
        sample = None if predictions.cells is None else predictions.cells.sample
    return None if sample is None else SampleMatch(sample.found, sample.uncertain, sample.size)
