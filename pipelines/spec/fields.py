"""Fields of a release as a user asks for them, before they are checked: from flags, YAML or keywords, one object.

Each is declared once, with type, default, choices and a text. Of this are made: the flags with their help (`flags`),
the names of `--config`, the keywords of Python with their docstrings (`keywords_of`), and the parameters of templates.

A field has the name of its flag. Where a flag takes text with commas, Python may give a sequence or a mapping. None is
for what is not given, and stands for the default that its text names.

Values that fields can have are those of mechanisms and transforms, which load numpy, scipy or Beam; the help lists them
without. `tests/pipelines/flags` compares both.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import FieldError, FieldNames, as_parameter, did_you_mean
from .field_values import CLASS_FIELDS, flag_name, is_name, kinds_of, quoted, typed_value
from .written_files import FOLDER, LEDGER

INPUT_FORMATS = ("tfrecord", "parquet", "csv", "orc")
ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".orc": "orc",
    ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".tfrec": "tfrecord",
}  # fmt: skip
"""Formats by the end of a file's name, before `.gz`."""
TABLE_SCHEMES = ("iceberg://", "delta://")
CSV_TYPES = ("int64", "uint64", "float64", "string", "date", "timestamp")
DIALECT = ("delimiter", "encoding", "decimal", "thousands", "columns", "newlines")
"""Settings of `--csv_dialect`."""
PARTITIONS = ("hive", "none")
"""Treatment of folders named KEY=VALUE: columns of the records below them, or not."""
MISSING_COLUMNS = ("error", "null")
NULL_COLUMNS = "null"
"""Value of `--missing_columns` for files of which some lack columns of others."""
OUTPUT_FORMATS = ("tfrecord", "parquet")
COMPRESSIONS = ("none", "gzip")
ROUNDINGS = ("nearest", "randomized")
KEY_MODES = ("owner", "group")
"""Who may read the noise key file: its owner, or a group of the process as well."""
LOSSES = ("squared", "absolute", "poisson")
DEFAULT_LOSS = "squared"
AUTO = "auto"
CENTERS = ("cells", "linear", "marginals", "none")
LINEAR_CENTER, CELL_CENTER, MARGINAL_CENTER = "linear", "cells", "marginals"
NO_CENTER = "none"
"""Value of `--center` for labels without a center."""
MODELS_OF_LOG = "log_features"
"""Purpose of a release for recipients who train on the features of the log alone."""
PURPOSES = ("models", MODELS_OF_LOG, "labels")
MODELS = ("linear", "trees")

MECHANISMS_BY_PURPOSE = {
    "training a model": ("unbiased", "bias_limited", "debiased_rr"),
    "least error of each label": ("rr_on_bins",),
    "approximate DP": ("gaussian",),
    "few outputs": ("quantizer", "optm", "rqm", "erm", "mvu"),
    "comparison with the literature": (
        "unbiased_grid", "rr", "rr_top_k", "rp_with_prior", "laplace", "staircase", "exponential",
    ),
}  # fmt: skip
"""Names of the mechanisms, by what they are for."""
MECHANISMS = tuple(name for names in MECHANISMS_BY_PURPOSE.values() for name in names)
MECHANISM_LIST = "; ".join(f"{purpose}: {', '.join(names)}" for purpose, names in MECHANISMS_BY_PURPOSE.items())
"""Text for the help of `--mechanism`."""


class MechanismNames(tuple[str, ...]):
    """Names of mechanisms, which contain NAME:PARAMETER=VALUE,... as well."""

    def __contains__(self, text: object) -> bool:
        return super().__contains__(str(text).partition(":")[0])


# A file, or any path or array: the values are checked as they are taken.
Place = str | Any
Names = str | Sequence[str]
Classes = str | Sequence[Any] | Mapping[str, Any]
Pairs = str | Mapping[str, Any]
Number = str | float
_LOOKED_UP = ("rounding", "loss", "mechanism")
"""Fields whose values are looked up by the objects that they name."""

F = TypeVar("F", bound="Fields")


def about(
    metavar: str | None,
    help: str,
    choices: Sequence[str] = (),
    writes: str | None = None,
    memory: str | None = None,
    line: str | None = None,
) -> dict[str, Any]:
    """Metadata of a declared field: what faces show of it.

    Fields in braces are named as each face does. `metavar` stands for the value of the flag, None for a switch.
    `writes` is the kind of the file that the value names to be written. `memory` is the text of classes that take
    records in memory, and `line` that of the command's help, where they are not `help`.
    """
    texts = {"help": help, "memory": memory or help, "line": line or help}
    return {"metavar": metavar, "choices": choices, "writes": writes, **texts}


def option(default: Any, metavar: str | None, help: str, **more: Any) -> Any:
    """A declared field with a default; the other arguments are those of `about`."""
    return field(default=default, metadata=about(metavar, help, **more))


def renewed(name: str, default: Any = dataclasses.MISSING) -> Any:
    """The declared field of that name with another default, or without one."""
    return field(default=default, metadata=declared(Fields)[name].metadata, kw_only=True)


@functools.lru_cache
def declared(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The declared fields of a class by name."""
    return {known.name: known for known in dataclasses.fields(cls)}


def arguments_text(cls: Any, names: Iterable[str], first: str, text: str = "help") -> str:
    """Docstring of a function that takes fields of a class as keywords; `text` is `help`, or `memory`."""
    lines = []
    for name in names:
        described = FieldNames(declared(cls)[name].metadata[text]).text(as_parameter)
        lines.append(f"  {name}: {described[0].upper()}{described[1:]}.")
    return "\n".join([first, "", "Args:", *lines])


def keywords_of(function: Any, names: Sequence[str], first: str, needed: Sequence[str] = ()) -> None:
    """Gives a function that takes any keywords the docstring and the signature of fields of these names.

    Annotations are types, not text, so that Beam YAML can state them.
    """
    empty, fields, hints = inspect.Parameter.empty, declared(Fields), typing.get_type_hints(Fields)
    own = [given for given in inspect.signature(function).parameters.values() if given.kind is not given.VAR_KEYWORD]
    for name in names:
        if name not in {given.name for given in own}:
            default = empty if name in needed else fields[name].default
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    own = [
        given.replace(annotation=_stated_type(hints[given.name], given.default is not empty)) if given.name in hints
        else given
        for given in own
    ]  # fmt: skip
    function.__signature__ = inspect.Signature(own)
    function.__doc__ = arguments_text(Fields, names, first)


def _stated_type(hint: Any, optional: bool) -> Any:
    """Type of a field as a schema states it: `Any` for one that takes several, but the first of one that is needed."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind not in (type(None), Any)]
    kind = kinds[0] if len(kinds) == 1 or not optional else Any
    # Beam does not know unions as Python writes them.
    return typing.Optional[kind] if optional else kind  # noqa: UP045


@dataclass(kw_only=True, eq=False)
class LabelFields:
    """Fields of a label, its budget and its mechanism, which releases of files and of labels in memory have."""

    label: Names = field(kw_only=True, metadata=about("NAME", "label column, which is private"))
    epsilon: float | None = option(
        None, "E",
        "privacy budget of the release, label histogram and labels together; smaller is more private",
        line="privacy budget; smaller is more private",
    )  # fmt: skip
    label_min: Number | None = option(
        None, "A", "smallest label of the label grid; default 0",
        memory="smallest label of the public label grid: an integer, float or decimal text. Labels outside the domain "
        "are clamped to it; default 0",
    )  # fmt: skip
    label_max: Number | None = option(None, "B", "largest label of the label grid")
    label_step: Number | None = option(None, "S", "spacing of the label grid; default 1 for whole numbers")
    label_values: str | Sequence[float] | Any | None = option(
        None, "FILE", "label domain, one label per line, instead of a grid",
        memory="the labels of an uneven public domain, ascending, instead of a grid",
    )  # fmt: skip
    label_classes: Classes | None = option(
        None, "A,B,...|FILE",
        "classes of the label, with commas, or a file of one per line; with several labels LABEL=A,B,...;LABEL=FILE",
        memory="public classes of the label, texts, whole numbers or booleans, instead of a domain of numbers. "
        "Released labels have the type of the given ones",
        line="classes of the label, with commas or in a file",
    )  # fmt: skip
    other_class: str | Mapping[str, Any] | Any | None = option(
        None,
        "CLASS",
        "class as which values count that are not listed; default: the first one",
        line="class that unlisted values count as; default: first",
    )
    missing_label: Number | Any | None = option(
        None, "VALUE",
        "label or class that a missing one counts as, such as 0 for what has not come yet; whether a record has a "
        "label is then as private as its label. Default: records without a label are left out",
        line="what a missing label counts as; default: left out",
    )  # fmt: skip
    mechanism: str | None = option(
        None, "NAME[:PARAMETER=VALUE,...]",
        "auto, the mechanism with the least error of a model that is trained on the labels; or a name, with parameters "
        f"as in bias_limited:bias=0.2. For {MECHANISM_LIST}; default auto", choices=MechanismNames((AUTO, *MECHANISMS)),
        line="auto, or the name of a mechanism; default auto",
    )  # fmt: skip
    for_: str | None = option(
        None, "PURPOSE",
        "what the labels serve for, instead of {mechanism}: models, which is auto; log_features, models of those who "
        "train on the features of this log alone: up to epsilon 2 labels are then drawn around a model that takes most "
        "of epsilon; or labels, the least error of each label, which is rr_on_bins without a center; of classes, "
        "models is rr and labels rr_top_k; default models", choices=PURPOSES,
        line="models, log_features or labels; default models",
    )  # fmt: skip
    loss: str | None = option(
        None,
        "LOSS",
        f"loss to minimize: {', '.join(LOSSES)}; default {DEFAULT_LOSS}",
        choices=LOSSES,
        line="squared, absolute or poisson; default squared",
    )
    delta: float | None = option(
        None,
        "D",
        "delta of (epsilon, delta)-DP, as gaussian needs; default: pure DP",
        line="delta, as gaussian needs; default: pure DP",
    )
    prior_epsilon: float | None = option(
        None, "E1",
        "part of {epsilon} for the label histogram; default: sqrt(labels/records), at most a half, for mechanisms "
        "without bias a 128th, for those without a prior a 256th; with a center sqrt(cells/records), a 32nd to an "
        "eighth",
        line="part of {epsilon} for the histogram; default: by rule",
    )  # fmt: skip
    rounding: str | None = option(
        None, "HOW",
        "rounding of labels between grid points: nearest, or randomized, which is unbiased; default: randomized for "
        "unbiased mechanisms, else nearest", choices=ROUNDINGS,
        line="nearest or randomized; default: by mechanism",
    )  # fmt: skip
    id_column: str | None = option(
        None, "NAME", "column of unique record ids; default: identified by file and row",
        memory="name of the column of `ids`; default: records are identified by source and row",
        line="column of unique record ids; default: file and row",
    )  # fmt: skip
    center: str | None = option(
        None, "CENTER",
        "linear: predict labels from the features first, by a linear model with a part of {epsilon}; cells: and where "
        "it pays, by trees over cells of the features with more of it; marginals: by the sum of an effect of each "
        "feature, for logs of categories, with most of it; predictions are released as a column; none: no center; "
        "default: linear for {mechanism} auto over an even label domain, with {for} log_features marginals for a large "
        "log of categories, else cells",
        choices=CENTERS,
        memory='"cells", "linear" or "marginals" for a center of the features also where none is made by default, '
        '"none" for none; '
        'default: one if features are given, with {mechanism} "auto", only for an even grid of at least five labels',
        line="linear, cells, marginals or none; default: by label and {for}",
    )  # fmt: skip
    center_column: str | None = option(
        None, "NAME",
        "public column with a prediction of the label, from a model that has not seen these labels; needs an even "
        "label domain. With another {center}, name of the new column; default LABEL_center",
        line="public column with a prediction of the label",
    )  # fmt: skip
    center_features: Names | None = option(
        None,
        "NAME,...",
        "features of {center}: numbers, and texts as categories; default: all of them",
        line="columns that the center predicts from; default: all",
    )
    leave_out: Names | None = option(
        None, "NAME,...",
        "columns that are not released, neither in the shards nor in the center or the statistics: such as that of the "
        "unit, the id or {where}, or features that are private themselves; not the label",
        memory="names of columns of the features that are not released, in neither frame nor center",
        line="columns that are not released",
    )  # fmt: skip
    unit_column: str | None = option(
        None, "NAME",
        "public column of integers or text that names the unit of each record, such as a user; records without a unit "
        "are left out",
        memory="name of the column of `units`, for all labels of one of which epsilon then holds; default: for the "
        "label of a single record",
        line="public column of units, such as users",
    )  # fmt: skip
    max_records_per_unit: int | None = option(
        None, "M",
        "largest number of records of a unit that are released, chosen by a keyed hash of their identities; each label "
        "gets an M-th of epsilon. labeldp plan --units compares values of M",
        memory="largest number of records of a unit that are released. Labels of further records stay missing",
        line="most records of a unit that are released",
    )  # fmt: skip
    max_unusable_fraction: float = option(
        0.5, "F",
        "tolerated fraction of records without a usable label, which are left out; default 0.5: a job is refused where "
        "most labels are missing",
        memory="tolerated fraction of records without a usable label, whose labels stay missing; default 0.5",
        line="tolerated share of missing labels; default 0.5",
    )  # fmt: skip
    noise_key_file: Place | None = option(
        None, "FILE",
        "file with the 32-byte secret key, mode 0600; default: ~/.config/labeldp/noise.key, created if it does not "
        "exist",
        line="secret key; default ~/.config/labeldp/noise.key",
    )  # fmt: skip
    # It may hold a password.
    ledger: Place | None = field(default=None, repr=False, metadata=about(
        "FILE|URL",
        "record of the budget spent: a file, or a team's database, sqlite:///FILE or postgresql://USER@HOST/DATABASE; "
        "default labeldp_ledger.jsonl beside the output", writes=LEDGER,
        memory="record of the budget spent, a file or the URL of a database; default labeldp_ledger.jsonl in the "
        "current folder",
        line="record of budget spent; default beside the output",
    ))  # fmt: skip
    epsilon_cap: float | None = option(
        None,
        "E",
        "refuse a release that would raise the ledger's epsilon above it",
        line="refuse a release that raises the ledger above it",
    )
    delta_cap: float | None = option(
        None,
        "D",
        "the same for delta; default 0 with {epsilon_cap}, else no cap",
        line="the same for delta; default 0 with {epsilon_cap}",
    )
    cap_window: str | None = option(
        None, "TIME",
        "let the caps hold for what is released within any time of this length, such as 12h, 30d or 4w; default: all "
        "time together",
        line="let caps hold for any time of this length, such as 30d",
    )  # fmt: skip


@dataclass(kw_only=True)
class Fields(LabelFields):
    """Fields of a release. `labeldp privatize --help` says what each of them means.

    Numbers of the label grid are kept as text: 0.1 is exactly one tenth. `label_values` is a file, or the labels;
    `label_classes` a file, or the classes; with several labels, those of each by its name.
    """

    input: str | None = option(
        None, "GLOB|TABLE",
        "input files; quote a glob, as in 'log-*.csv'. Or a snapshot of a table, by default the current one: "
        "iceberg://CATALOG/NAMESPACE.TABLE[@SNAPSHOT_ID] or delta://PATH[@VERSION]",
        line="input files: quote a glob; or a table",
    )  # fmt: skip
    input_format: str | None = option(
        None,
        "FORMAT",
        f"format of the input files: {', '.join(INPUT_FORMATS)}; default: that of their names",
        choices=INPUT_FORMATS,
        line="tfrecord, parquet, csv or orc; default: by the name",
    )
    csv_types: Pairs | None = option(
        None,
        "NAME=TYPE,...",
        f"column types, where CSV inference fails: {', '.join(CSV_TYPES)}",
        line="column types, where CSV inference fails",
    )
    csv_dialect: Names | Mapping[str, Any] | None = option(
        None, "NAME=VALUE",
        "how CSV is written: delimiter=';' or another character; encoding=latin-1 or another; decimal=, for the "
        "decimal "
        "mark, and thousands=. for that of thousands; columns=NAME,... of files without a header line; "
        "newlines=true, if "
        "quoted fields may have line breaks; default: delimiter=, encoding=utf-8 decimal=.",
        line="such as delimiter=';' encoding=latin-1 decimal=,",
    )  # fmt: skip
    partitions: str = option(
        PARTITIONS[0], "HOW",
        "folders named KEY=VALUE in the paths of input files: hive makes columns of them, none ignores them; default "
        "hive", choices=PARTITIONS,
        line="folders KEY=VALUE as columns, hive or none",
    )  # fmt: skip
    missing_columns: str = option(
        MISSING_COLUMNS[0], "HOW",
        "columns that only some of the Parquet files have: error, or null, which is their value in the others; default "
        "error. Tables say it themselves", choices=MISSING_COLUMNS,
        line="for columns that files lack: error or null",
    )  # fmt: skip
    where: str | None = option(
        None,
        "NAME=VALUE",
        "keep only records whose public feature NAME has this value",
        line="keep only records with this value of a feature",
    )
    noise_key_mode: str | None = option(
        None, "WHO",
        "who may read {noise_key_file}: owner; or group, a group of this process as well, mode 0440, as mounted "
        "secrets of Kubernetes have it; default owner", choices=KEY_MODES,
        line="who may read the key: owner or group; default owner",
    )  # fmt: skip
    mechanism_file: str | None = option(None, "FILE", "mechanism file of fit or solve")
    output: str | None = option(None, "DIR", "output folder; must be new or empty", writes=FOLDER)
    output_table: str | None = option(
        None, "TABLE",
        "add the shards to a table, in one commit after the charge: iceberg://CATALOG/NAMESPACE.TABLE, or "
        "delta://PATH, which gets copies",
        line="add the shards to a table as well",
    )  # fmt: skip
    sign: str | None = option(
        None, "KEY",
        "sign the hashes of all files of the release with this Ed25519 private key: a PEM file (PKCS8, not encrypted) "
        "with the mode of {noise_key_file}",
        line="sign the release with this Ed25519 private key",
    )  # fmt: skip
    output_format: str | None = option(
        None, "FORMAT",
        f"format of the shards: {', '.join(OUTPUT_FORMATS)}; default: that of the input, or parquet for csv",
        choices=OUTPUT_FORMATS,
        line="tfrecord or parquet; default: as the input",
    )  # fmt: skip
    num_shards: int | None = option(
        None, "N",
        "number of shards; default: number of input files. With {partition_output}, of each folder; default: the "
        "largest number of input files of a folder",
        line="number of shards; default: that of input files",
    )  # fmt: skip
    shuffle: bool | None = option(
        None, None,
        "put records into shards and in an order that follow from the noise key alone, where the files or the order of "
        "the input may tell labels; sorts each shard in memory",
        line="keyed shards and order, so neither tells file or row",
    )  # fmt: skip
    partition_output: Names | None = option(
        None, "NAME,...",
        "write shards to folders NAME=VALUE, by columns that come from the names of the input's folders; the columns "
        "are left out of the shards",
        line="write shards to folders NAME=VALUE",
    )  # fmt: skip
    compression: str = option(
        COMPRESSIONS[0], "HOW", f"compression of the shards: {', '.join(COMPRESSIONS)}; default none",
        choices=COMPRESSIONS,
        line="none or gzip; default none",
    )  # fmt: skip
    validate: bool | str | None = option(
        None, "FILE",
        "validate, and release TFDV statistics and a schema in validation/; with FILE, features must match this TFDV "
        "schema",
        line="release TFDV statistics; with FILE, match its schema",
    )  # fmt: skip
    dry_run: bool | None = option(
        None,
        None,
        "say what the job would do, and what it would charge; of labels, it only reads which are missing",
        line="say what the job would do and charge",
    )

    def __post_init__(self) -> None:
        """Takes the format from the name of the input, where none is given."""
        if self.input_format is None and self.input is not None:
            self.input_format = format_of_name(self.input)

    @classmethod
    def of(cls: type[F], values: Mapping[str, Any]) -> F:
        """Takes the fields from values by attribute; other values are passed over, and None is the default.

        Raises FieldError if a value has the wrong type, or is none of the choices.
        """
        kinds = kinds_of(cls)
        given = {name: values[name] for name in kinds if values.get(name) is not None}
        for name in given:
            try:
                given[name] = typed_value(name, given[name], kinds[name])
            except (OverflowError, ValueError):
                raise FieldError(f"{{{flag_name(name)}}} is out of the range of floats") from None
            known = declared(cls)[name].metadata["choices"]
            if known and name not in _LOOKED_UP and given[name] not in known:
                raise FieldError(
                    f"{{{flag_name(name)}}}: unknown value {{value}}; known: {{known}}{{meant}}",
                    value=quoted(given[name]),
                    known=", ".join(known),
                    meant=did_you_mean(given[name], known),
                )
        missing = next((f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING), None)
        if missing is not None and missing not in given:
            raise FieldError(f"{{{flag_name(missing)}}} is missing")
        return cls(**given)

    @property
    def mechanism_name(self) -> str | None:
        """Name of the mechanism, without its parameters."""
        return None if self.mechanism is None else self.mechanism.partition(":")[0]

    @property
    def classes(self) -> dict[str, Any]:
        """The fields of classes."""
        return {name: getattr(self, name) for name in CLASS_FIELDS}

    @classmethod
    def of_keywords(cls: type[F], keywords: Mapping[str, Any], owner: str) -> F:
        """Takes the fields from the keyword arguments of a class of that name, as `of` does.

        Raises ValueError if there is no such field.
        """
        for keyword in keywords:
            if keyword not in kinds_of(cls):
                raise ValueError(f"{owner} has no parameter {keyword!r}: see labeldp privatize --help")
        return cls.of(keywords)


def format_of_name(path: str) -> str | None:
    """Format by the name of a file, a glob or a table; None if it does not say."""
    if path.startswith(TABLE_SCHEMES):
        return "parquet"
    return ENDINGS.get(os.path.splitext(path.lower().removesuffix(".gz"))[1])


def names_of(value: Names | None) -> tuple[str, ...]:
    """Names in a text with commas, or in a sequence; none for None."""
    if value is None:
        return ()
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


def shown(value: Names) -> str:
    """Names as they are written on the command line."""
    return value if isinstance(value, str) else ",".join(value)


def pairs_of(value: Pairs | None, form: str, where: str, **values: Any) -> dict[str, Any]:
    """Pairs in a text NAME=VALUE,..., or in a mapping; none for None.

    `form` is that text as messages show it, after `where`, the beginning of a message with its values. Raises
    FieldError if the text is malformed, or a name is there twice.
    """
    if value is None:
        return {}
    if not isinstance(value, str):
        if not all(map(is_name, value)):
            raise FieldError(f"{where} must have names as keys", **values)
        return dict(value)
    pairs: dict[str, Any] = {}
    for pair in value.split(","):
        name, equals, text = pair.partition("=")
        if not (name and equals and text) or name in pairs:
            raise FieldError(f"{where} takes {form},..., each name once, not {{pair!r}}", pair=pair, **values)
        pairs[name] = text
    return pairs
