"""Released and public facts of a release, read from its files: what warnings and verdicts are computed from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow.parquet

from ...mechanisms.analysis.utility import CenterFacts, ReleasedFacts
from ...transforms.io.filesystems import FileSystems, open_input
from ...transforms.tfrecord.framing import read_records
from ..spec.mechanism_file import MechanismFile
from .manifest import Manifest

# Records of a TFRecord file in which features are looked for.
_RECORDS_READ = 256


def released_facts(
    mechanism: MechanismFile,
    records: int | None = None,
    features: int | None = None,
    loss: str | None = None,
    missing_centers: int | None = None,
) -> ReleasedFacts:
    """Collects the facts of a mechanism file and of the release made with it.

    Without labels released yet, `records` is None; other arguments are None where they are unknown. `features` is a
    number of columns, `loss` the name of the one that was asked for, and `missing_centers` a number of records.
    """
    center = mechanism.center
    return ReleasedFacts(
        mechanism.randomizer,
        mechanism.prior,
        mechanism.prior_epsilon,
        records,
        features,
        loss,
        None
        if center is None
        else CenterFacts(
            center.whole_prior(mechanism.randomizer),
            (center.domain[0], center.domain[-1]),
            missing_centers,
            center.groups is not None,
            center.label_variance,
        ),
        1 if mechanism.unit is None else mechanism.unit.max_records,
    )


def manifest_facts(mechanism: MechanismFile, manifest: Manifest | None) -> ReleasedFacts:
    """Collects the facts that the files of a release state; a mechanism file alone has no manifest beside it."""
    if manifest is None:
        return released_facts(mechanism)
    return released_facts(mechanism, manifest.records, manifest.features, manifest.loss, manifest.missing_centers)


def feature_columns(
    data: str, shards: Mapping[str, int], others: Collection[str], folders: Collection[str] = ()
) -> int | None:
    """Counts the columns of a Parquet shard, or features in the first records of a TFRecord shard, and its folders.

    `data` is the folder of the shards, and `shards` has the number of records by name. `others` are columns that are no
    features: label, id and center. `folders` are columns in the names of the shards' folders. None if no shard has
    records. Raises InputError if the shard cannot be read.
    """
    name = next((name for name, records in shards.items() if records), None)
    if name is None:
        return None
    path = FileSystems.join(data, name)
    with open_input(path) as file:
        if name.endswith(".parquet"):
            found = set(pyarrow.parquet.read_schema(file).names)
        else:
            # Needs the extra `tfrecord`, as TFRecord does.
            from ...transforms.tfrecord.example_decoder import ExampleDecoder

            frames = next(read_records(file, path, _RECORDS_READ, None))
            found = ExampleDecoder(path).names(frames.records())
    return len((found | set(folders)) - set(others))
