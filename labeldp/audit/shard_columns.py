"""Labels, centers and features of the records of a shard, batch after batch, for the auditor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .class_columns import ClassLabels, probabilities_of_column, probabilities_of_messages, single_values
from .documents import RefusedDocument, printable
from .tfrecord_examples import Feature, Records, read_features, read_messages, read_tfrecords

_ROWS = 1 << 16
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)
_NANOSECONDS = re.compile(r"\.([0-9]{9})(?:([+-][0-9]{2})([0-9]{2})|Z)?$", re.ASCII)
_NO_FOLDERS: Mapping[str, str | None] = MappingProxyType({})


class Column(NamedTuple):
    """One feature of n records.

    Attributes:
      numbers: The single number of each record, shape (n,), float64; NaN where there is none.
      floats: Records of a TFRecord file in which it is a float, and may be rounded, shape (n,), bool.
      codes: For a category, index of the value of each record, shape (n,), int64; -1 where there is none.
      values: The values of the codes: text, or numbers of a TFRecord file.
    """

    numbers: np.ndarray
    floats: np.ndarray
    codes: np.ndarray
    values: Sequence[str | int | float]


class Batch(NamedTuple):
    """Columns of n consecutive records.

    Attributes:
      labels: Shape (n,), float32 or float64, as they stand in the file; of classes the places, NaN for no class.
      centers: Shape (n,), float64, NaN where there is not exactly one number; of classes that are drawn from a center
        the probabilities in its units, shape (n, K), int64.
      features: Further columns by name.
      units: Unit of each record, as a category; None if there are no units.
    """

    labels: np.ndarray
    centers: np.ndarray
    features: dict[str, Column]
    units: Column | None


@dataclass(frozen=True)
class ShardReader:
    """Reader of some columns.

    Attributes:
      label: Name of the label.
      center: Name of the center column; None to read no centers.
      numbers: Names of features that are numbers.
      categories: Names of features that are categories.
      unit: Column of privacy units; None if there are none.
      classes: Finds the places of labels that are classes; None for numbers.
      drawn: Number of classes whose probabilities the center column holds; 0 if it has numbers.
      absent: Names of columns that no record may have.
    """

    label: str
    center: str | None = None
    numbers: Sequence[str] = ()
    categories: Sequence[str] = ()
    unit: str | None = None
    classes: ClassLabels | None = None
    drawn: int = 0
    absent: Sequence[str] = ()

    def read(self, path: Path, folders: Mapping[str, str | None] = _NO_FOLDERS) -> Iterator[Batch]:
        """Reads consecutive records of a shard: Parquet, TFRecord, or TFRecord with gzip.

        `folders` are the columns that all its records have from the names of its folders, with their value; None if
        missing. Raises RefusedDocument if the file is damaged, or a column has values of the wrong type, or is to be
        absent.
        """
        self._check_absent(folders)
        return self._parquet(path, folders) if path.suffix == ".parquet" else self._tfrecords(path, folders)

    def _check_absent(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.absent:
                raise RefusedDocument(f"has the column {printable(name)}, which release.left_out says is left out")

    def _tfrecords(self, path: Path, folders: Mapping[str, str | None]) -> Iterator[Batch]:
        first = 0
        numbers = None if self.drawn else self.center
        others = [name for name in (numbers, self.unit) if name is not None]
        wanted = [name for name in (*self.numbers, *self.categories, *others) if name not in folders]
        names = {name: name.encode(errors="surrogatepass") for name in wanted}
        for records in read_tfrecords(path):
            labels, columns, drawn = self._features(records, first, list(names.values()))
            of_files = {name: columns[encoded] for name, encoded in names.items()}
            # A column of the folders is read as in Parquet; the others have no values there, and are replaced.
            batch = self._batch(_of_folders(folders, len(labels)), labels)
            features = {name: _number_column(name, of_files[name]) for name in self.numbers if name in of_files}
            features |= {name: _category_column(of_files[name]) for name in self.categories if name in of_files}
            centers, units = batch.centers, batch.units
            if drawn is not None:
                centers = drawn
            elif self.center in of_files:
                centers = of_files[self.center].numbers
            if self.unit in of_files:
                units = _category_column(of_files[self.unit])
            yield Batch(labels, centers, batch.features | features, units)
            first += len(records.starts)

    def _features(
        self, records: Records, first: int, names: list[bytes]
    ) -> tuple[np.ndarray, dict[bytes, Feature], np.ndarray | None]:
        """Labels or places of classes, further features, and probabilities of the records of a TFRecord file."""
        label, absent = self.label.encode(), [name.encode(errors="surrogatepass") for name in self.absent]
        if self.classes is None:
            return *read_features(records, label, first, names, absent), None
        others = [self.center.encode()] if self.drawn and self.center is not None else []
        (labels, *lists), columns = read_messages(records, label, first, names, others, absent)
        drawn = probabilities_of_messages(lists[0], self.drawn) if lists else None
        return self.classes.of_messages(labels), columns, drawn

    def _parquet(self, path: Path, folders: Mapping[str, str | None]) -> Iterator[Batch]:
        """Labels are float64, or float32 from lists of one."""
        center = None if self.center in folders else self.center
        try:
            with path.open("rb") as file:
                parquet = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
                known = parquet.schema_arrow.names
                self._check_absent(known)
                if not folders.keys().isdisjoint(known):
                    raise RefusedDocument("has a column of the name of its folder")
                for name, kind in ((self.label, "label"), (center, "center")):
                    if name is not None and known.count(name) != 1:
                        if not parquet.metadata.num_rows:
                            return  # without a record in any shard there are no columns
                        raise RefusedDocument(f"does not have exactly one {kind} column")
                wanted = [self.label, *([] if center is None else [center])]
                units = [] if self.unit is None else [self.unit]
                for name in [*self.numbers, *self.categories, *units]:
                    if known.count(name) > 1:
                        raise RefusedDocument(f"has two columns of one name: {printable(name)}")
                    if name in known and name not in wanted:
                        wanted.append(name)
                for batch in parquet.iter_batches(_ROWS, columns=wanted):
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    column = columns[self.label]
                    labels = _single_floats(column) if self.classes is None else self.classes.of_column(column)
                    yield self._batch(columns | _of_folders(folders, len(labels)), labels)
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is truncated or corrupt"
            raise RefusedDocument(f"cannot be read as Parquet: {printable(reason)}") from None

    def _batch(self, columns: dict[str, pa.Array], labels: np.ndarray) -> Batch:
        """Batch of the columns that are there; others have no values."""
        rows, missing = len(labels), pa.nulls(len(labels))
        centers = np.full(rows, np.nan)
        if self.center in columns:
            column = columns[self.center]
            centers = probabilities_of_column(column, self.drawn) if self.drawn else _numbers(column, "centers")
        features = {}
        for name in self.numbers:
            values = _numbers(columns.get(name, missing), f"values of {printable(name)}")
            features[name] = Column(values, np.zeros(rows, bool), np.zeros(0, np.int64), [])
        for name in self.categories:
            features[name] = _texts(columns.get(name, missing))
        units = None if self.unit is None else _texts(columns.get(self.unit, missing))
        return Batch(labels, centers, features, units)


def _of_folders(folders: Mapping[str, str | None], rows: int) -> dict[str, pa.Array]:
    """Columns of the folders, of integers where the values are. The job has written integers without leading zeros."""
    columns = {}
    for name, text in folders.items():
        value = int(text) if text is not None and _INTEGER.fullmatch(text) else text
        columns[name] = pa.repeat(pa.scalar(value, pa.int64() if isinstance(value, int) else pa.string()), rows)
    return columns


def _number_column(name: str, feature: Feature) -> Column:
    if any(isinstance(value, str) for value in feature.values.values()):
        raise RefusedDocument(f"has texts in {printable(name)}, which is a number for the linear center")
    return Column(feature.numbers, feature.floats, np.zeros(0, np.int64), [])


def _category_column(feature: Feature) -> Column:
    codes = np.full(len(feature.numbers), -1)
    values: dict[int, str | int | float] = dict(feature.values)
    places: dict[tuple[type, str], tuple[int, str | int | float]] = {}
    for row in np.flatnonzero(feature.floats).tolist():
        values[row] = float(feature.numbers[row])
    for row, value in values.items():
        codes[row] = places.setdefault((type(value), str(value)), (len(places), value))[0]
    return Column(feature.numbers, feature.floats, codes, [value for _, value in places.values()])


def _single_floats(column: pa.Array) -> np.ndarray:
    column = single_values(column)
    if column.type not in (pa.float32(), pa.float64()) or column.null_count:
        raise RefusedDocument("has labels that are missing or are not float32 or float64")
    return column.to_numpy(zero_copy_only=False)


def _single(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The single values of a column, and the numbers of the records that have one."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    rows = np.arange(len(column))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        rows = rows[column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) == 1]
        column = column.take(pa.array(rows)).flatten()
    known = np.asarray(column.is_valid())
    return column.filter(pa.array(known)), rows[known]


def _numbers(column: pa.Array, name: str) -> np.ndarray:
    """The single number of each record, as float64; NaN where there is none."""
    values = np.full(len(column), np.nan)
    singles, rows = _single(column)
    kind = singles.type
    if pa.types.is_boolean(kind):
        singles, kind = singles.cast(pa.int8()), pa.int8()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        if len(singles):
            raise RefusedDocument(f"has {name} that are not numbers")
        return values
    values[rows] = singles.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _texts(column: pa.Array) -> Column:
    """The single value of each record, as text."""
    singles, rows = _single(column)
    encoded, codes = singles.dictionary_encode(), np.full(len(column), -1)
    codes[rows] = encoded.indices.to_numpy(zero_copy_only=False)
    values = encoded.dictionary
    if pa.types.is_temporal(values.type):
        texts = [_time_text(value) for value in values]
    else:
        texts = [
            value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
            for value in values.to_pylist()
        ]
    return Column(np.zeros(0), np.zeros(len(column), bool), codes, texts)


def _time_text(value: pa.Scalar) -> str:
    """A date or time as Python writes it; as Arrow does, if Python does not know its year."""
    if getattr(value.type, "unit", None) == "ns":
        # Python has no nanoseconds.
        return _NANOSECONDS.sub(_time_ending, str(value.cast(pa.string())))
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, KeyError):
        return str(value.cast(pa.string()))


def _time_ending(match: re.Match[str]) -> str:
    """Fraction and offset of a time as Python writes them: 0, 6 or 9 digits, and +01:00."""
    digits, hours, minutes = match[1], match[2] or "+00", match[3] or "00"
    fraction = "" if not int(digits) else f".{digits.removesuffix('000')}"
    return f"{fraction}{hours}:{minutes}" if match[2] or match[0].endswith("Z") else fraction
