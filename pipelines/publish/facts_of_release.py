"""Released and public facts of a release, read from its files: what warnings and verdicts are computed from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow.parquet

from ...mechanisms.analysis.released_facts import CenterFacts, ReleasedFacts
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

    Args:
      mechanism: The mechanism file.
      records: Number of records; None if no labels are released yet.
      features: Number of feature columns; None if unknown.
      loss: Name of the loss that was asked for; None if unknown.
      missing_centers: Number of records without a center; None if unknown.

    Returns:
      The facts.
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
    """Collects the facts that the files of a release state.

    Args:
      mechanism: The mechanism file.
      manifest: The manifest beside it; None for a mechanism file alone.

    Returns:
      The facts.
    """
    if manifest is None:
        return released_facts(mechanism)
    return released_facts(mechanism, manifest.records, manifest.features, manifest.loss, manifest.missing_centers)


def feature_columns(
    data: str, shards: Mapping[str, int], others: Collection[str], folders: Collection[str] = ()
) -> int | None:
    """Counts the feature columns of released shards.

    Args:
      data: Folder of the shards.
      shards: Number of records by shard name.
      others: Names of columns that are no features: label, id and center.
      folders: Names of columns that are in the names of the shards' folders.

    Returns:
      The number of columns of a Parquet shard, or of features in the first records of a TFRecord shard, and of its
      folders; None if no shard has records.

    Raises:
      InputError: If the shard cannot be read.
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
