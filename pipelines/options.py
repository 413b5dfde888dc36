"""The flags of `privatize`, `fit` and `apply`, in Beam's conventions, and the validated plan that they make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from ..mechanisms.label_rounding import ROUNDINGS
from ..mechanisms.losses import LOSSES, loss_named
from ..mechanisms.prior import check_domain, check_epsilon, label_grid, split_budget
from ..mechanisms.registry import MECHANISMS, default_rounding, mechanism_named
from ..transforms.errors import InputError
from ..transforms.metadata import without_feature
from ..transforms.noise_key import NoiseKeyFile, is_remote
from ..transforms.prior import LabelColumn, Threshold
from ..transforms.progress import LOGGER
from ..transforms.read import FORMATS, Equals, Format, absolute, match
from ..transforms.write import COMPRESSIONS
from .contender import takes_delta
from .extras import check_extra, check_tfx
from .files import check_parent
from .ledger import Caps, ledger_beside
from .parallel import processors
from .release import MechanismFile, read_mechanism_file, read_text
from .usage import ArgumentParser, UsageError, parse_parameters

OUTPUT_FORMATS = ("tfrecord", "parquet")
# What more of them do was not measured.
_THREADS = 2
LEAST_FILE_SIZE = 1 << 19
"""Bytes. In files that are smaller, threads wait for each other for longer than they save."""
NEEDED = {
    "privatize": ("input", "input_format", "label", "epsilon", "output"),
    "fit": ("input", "input_format", "label", "epsilon", "mechanism_file"),
    "apply": ("input", "input_format", "label", "mechanism_file", "output"),
}
"""The flags that a command cannot do without. The label domain is needed as well, in one of its two forms."""
_FITTED = (
    "label_min", "label_max", "label_step", "label_values", "rounding", "epsilon", "prior_epsilon",
    "mechanism", "mechanism_parameters", "loss",
)  # fmt: skip
_MOST_SHARDS = 99_999
"""Their names have five digits."""
DEFAULTS = {"mechanism": "rr_on_bins", "loss": "squared"}
"""Not the parser's: `apply` tells whether they were given."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The project's own flags. Which of them a command needs is checked by `make_plan`.

    Not a PipelineOptions family: Beam keeps `--label` for Google Cloud resource labels (also `--labels`, which
    still reaches it), and refuses a second one.
    """
    add = parser.add_argument
    add("--input", metavar="GLOB", help="files of labelled records")
    add("--input_format", choices=FORMATS, help="how the files are laid out")
    add("--csv_types", metavar="NAME=TYPE,...", help="int64, float64 or string for CSV columns guessed wrongly")
    add("--where", metavar="NAME=VALUE", help="keep only records whose public feature NAME has this value")
    add("--output", metavar="DIR", help="the folder to release; it must not exist, or be empty")
    add("--output_format", choices=OUTPUT_FORMATS, default="tfrecord", help="default tfrecord")
    add("--num_shards", type=int, metavar="N", help="files to write; default as many as were read")
    add("--compression", choices=COMPRESSIONS, default="none", help="default none")
    add("--label", metavar="NAME", help="the private column")
    add("--label_min", metavar="A", help="least label of the public domain")
    add("--label_max", metavar="B", help="largest label of the public domain")
    add("--label_step", metavar="S", help="distance of the domain's labels")
    add("--label_values", metavar="FILE", help="the domain as one label a line, instead of min, max and step")
    add("--rounding", choices=ROUNDINGS,
        help="of labels off the domain's points; default randomized for unbiased mechanisms, else nearest")  # fmt: skip
    add("--epsilon", type=float, metavar="E", help="the whole privacy budget, prior and labels together")
    add("--delta", type=float, metavar="D", help="for (epsilon, delta)-DP, as gaussian needs; default none: pure DP")
    add("--prior_epsilon", type=float, metavar="E1", help="what the histogram may spend; default sqrt(k/n), <= E/2")
    add("--mechanism", metavar="NAME", help=f"{', '.join(MECHANISMS)}; default rr_on_bins")
    add("--mechanism_parameters", metavar="NAME=VALUE,...", help="the mechanism's own, as in bias=0.2")
    add("--loss", choices=list(LOSSES), help="what to minimise; default squared")
    add("--id_column", metavar="NAME", help="unique ids to name records by; default their file and row")
    add("--noise_key_file", metavar="FILE", help="32 secret bytes, mode 0600; default one made for the user")
    add("--mechanism_file", metavar="FILE", help="what fit writes and apply reads")
    add("--max_unusable_fraction", type=float, default=0.001, metavar="F",
        help="records without a usable label that are tolerated; default 0.001")  # fmt: skip
    add("--validate", action="store_true", help="also release TFDV statistics and a schema, in validation/")
    add("--schema", metavar="FILE", help="refuse features that are against this TFDV schema; implies --validate")
    add("--ledger", metavar="FILE", help="the record of what was spent; default labeldp_ledger.jsonl beside output")
    add("--epsilon_cap", type=float, metavar="E", help="refuse to release when the ledger would exceed this")
    add("--delta_cap", type=float, metavar="D", help="the same for delta; default 0 with --epsilon_cap, else none")


@dataclass(frozen=True)
class Plan:
    """A job that was checked as far as that is possible without reading records.

    Fields are named after the flags. paths: what the input matches now. file_size: of one on average, in bytes. fitted:
    the mechanism file of `apply`. schema: the text of the file, without the label.
    """

    command: str
    pattern: str
    paths: tuple[str, ...]
    file_size: float
    format: Format
    where: Equals | None
    column: LabelColumn
    key: NoiseKeyFile
    threshold: Threshold
    ledger: str
    epsilon: float = 0.0
    delta: float = 0.0
    prior_epsilon: float | None = None
    mechanism: str = ""
    loss: str = "squared"
    own_parameters: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None
    output_format: str = "tfrecord"
    num_shards: int = 1
    compression: str = "none"
    mechanism_file: str | None = None
    caps: Caps = field(default_factory=Caps)
    fitted: MechanismFile | None = None
    validate: bool = False
    schema: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The mechanism's parameters."""
        return {"loss": self.loss, **self.own_parameters}


def parse(command: str, description: str, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The values of the project's flags, and the runner's flags. Exits with 2 for a flag that neither knows."""
    parser = ArgumentParser(f"labeldp {command}", description)
    parser.epilog = "Runner flags (--runner, --direct_num_workers, --flink_master, ...) pass through to Beam."
    add_flags(parser)
    return parse_known(parser, argv)


def parse_known(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """What the parser knows, and the runner's flags.

    Exits with 2 for a flag that neither knows. Raises UsageError for a value that Beam does not take.
    """
    args, others = parser.parse_known_args(argv)
    unknown = _unknown_to_beam(others)
    if unknown:
        first = unknown[0]
        parser.error(f"unknown flag {first}" if first.startswith("-") else f"no flag takes {first!a}: quote a glob")
    return args, others


def runner_options(flags: Sequence[str], file_size: float) -> PipelineOptions:
    """The runner's flags as Beam's options. file_size: of an input file on average, in bytes.

    In this process two threads work, unless the flags say how many, or the files are small.
    """
    options = PipelineOptions(flags)
    told = any(flag.startswith("--direct_num_workers") for flag in flags)
    if runs_here(options) and not told and file_size >= LEAST_FILE_SIZE:
        options.view_as(DirectOptions).direct_num_workers = min(_THREADS, processors())
    return options


def runs_here(options: PipelineOptions) -> bool:
    """Whether the runner is a local one, not a cluster's: FnApiRunner takes its place, which opens no port."""
    return runner_name(options).endswith(("directrunner", "fnapirunner"))


def runner_name(options: PipelineOptions) -> str:
    """The runner's class in lower case, as Beam reads the flag: in any case, without `Runner`, or with its module."""
    name = (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2].lower()
    return name if name.endswith("runner") else f"{name}runner"


def _unknown_to_beam(flags: Sequence[str]) -> list[str]:
    beam = argparse.ArgumentParser(allow_abbrev=False, add_help=False, conflict_handler="resolve", exit_on_error=False)
    for family in _families(PipelineOptions):
        family._add_argparse_args(beam)
    try:
        return beam.parse_known_args(list(flags))[1]
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None


def _families(family: type) -> list[Any]:
    below = family.__subclasses__()
    return below + [deeper for one in below for deeper in _families(one)]


def make_plan(command: str, args: argparse.Namespace) -> Plan:
    """Checks the flags of a command. Raises UsageError, naming the flag."""
    _require(command, args)
    args = argparse.Namespace(**vars(args) | {name: getattr(args, name) or DEFAULTS[name] for name in DEFAULTS})
    try:
        threshold = Threshold(args.max_unusable_fraction)
        format = Format(args.input_format, _csv_types(args.csv_types))
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    _check_extra(args)
    fitted = _fitted(args.mechanism_file, args.delta) if command == "apply" else None
    column = _column(args, fitted)
    where = _where(args.where, column)
    schema = _schema(args)
    if command != "apply":
        _check_solvable(args, column)
    if args.epsilon_cap is not None and not args.epsilon_cap > 0:
        raise UsageError(f"--epsilon_cap must be above 0, not {args.epsilon_cap:g}")
    if args.delta_cap is not None and not 0 <= args.delta_cap < 1:
        raise UsageError(f"--delta_cap must be at least 0 and below 1, not {args.delta_cap:g}")
    target = args.mechanism_file if command == "fit" else args.output
    _check_target("--mechanism_file" if command == "fit" else "--output", target)
    if args.num_shards is not None and not 1 <= args.num_shards <= _MOST_SHARDS:
        raise UsageError(f"--num_shards must be from 1 to {_MOST_SHARDS:,}, not {args.num_shards:,}")
    try:
        paths = match(absolute(args.input))
    except InputError as error:
        raise UsageError(str(error)) from None
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(f"--input {path!a}: the name is not UTF-8: rename the file") from None
    return Plan(
        command=command,
        pattern=absolute(args.input),
        paths=tuple(paths),
        file_size=sum(paths.values()) / len(paths),
        format=format,
        where=where,
        column=column,
        key=_key(args.noise_key_file, target),
        threshold=threshold,
        ledger=_ledger(args.ledger, target),
        epsilon=fitted.randomizer.epsilon if fitted else args.epsilon,
        delta=fitted.randomizer.delta if fitted else args.delta or 0.0,
        prior_epsilon=args.prior_epsilon,
        mechanism=fitted.randomizer.mechanism if fitted else args.mechanism,
        loss=args.loss,
        own_parameters=parse_parameters(args.mechanism_parameters, args.delta if fitted is None else None),
        output=args.output and absolute(args.output),
        output_format=args.output_format,
        num_shards=args.num_shards or len(paths),
        compression=args.compression,
        mechanism_file=args.mechanism_file,
        # Who caps epsilon alone expects pure DP.
        caps=Caps(args.epsilon_cap, 0.0 if args.delta_cap is None and args.epsilon_cap is not None else args.delta_cap),
        fitted=fitted,
        validate=args.validate or args.schema is not None,
        schema=schema,
    )


def _require(command: str, args: argparse.Namespace) -> None:
    missing = [name for name in NEEDED[command] if getattr(args, name) is None]
    if missing:
        raise UsageError(f"--{missing[0]} is missing")
    if command == "privatize" and args.mechanism_file is not None:
        raise UsageError("--mechanism_file is for fit and apply: privatize writes mechanism.json to --output")
    if command == "fit" and args.output is not None:
        raise UsageError("--output is for privatize and apply: fit writes --mechanism_file")
    if command == "fit" and args.validate and args.schema is None:
        raise UsageError("--validate writes to --output, which fit has not: give --schema to check features first")
    given = [name for name in _FITTED if getattr(args, name) is not None] if command == "apply" else []
    if given:
        raise UsageError(f"--{given[0]} is settled by the mechanism file: leave it out")


def _check_extra(args: argparse.Namespace) -> None:
    formats = {"--input_format": args.input_format}
    if args.output is not None:
        formats["--output_format"] = args.output_format
    for flag, format in formats.items():
        if format == "tfrecord":
            check_tfx(f"{flag} tfrecord")


def _csv_types(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    types = {}
    for pair in text.split(","):
        name, _, kind = pair.partition("=")
        if not kind:
            raise ValueError(f"csv_types takes NAME=TYPE, not {pair!r}")
        types[name] = kind
    return types


def _fitted(path: str, delta: float | None) -> MechanismFile:
    try:
        fitted = read_mechanism_file(path)
    except InputError as error:
        raise UsageError(f"--mechanism_file {error}") from None
    needed = fitted.randomizer.delta
    if needed > (delta or 0.0):
        raise UsageError(
            f"--mechanism_file {path} is not pure: its epsilon holds with delta {needed:g}. "
            f"Give --delta {needed:g} to accept that"
        )
    return fitted


def _column(args: argparse.Namespace, fitted: MechanismFile | None) -> LabelColumn:
    if args.id_column == args.label:
        raise UsageError("--id_column must be another column than --label")
    if fitted is not None:
        return LabelColumn(args.label, tuple(fitted.randomizer.labels.tolist()), args.id_column, fitted.rounding)
    grid = [args.label_min, args.label_max, args.label_step]
    if args.label_values is not None:
        if any(flag is not None for flag in grid):
            raise UsageError("--label_values replaces --label_min, --label_max and --label_step: give one or the other")
        labels = _label_values(args.label_values)
    elif any(flag is None for flag in grid):
        raise UsageError(
            "the public label domain is missing: give --label_min, --label_max and --label_step, or --label_values"
        )
    else:
        try:
            labels = label_grid(*grid)
        except ValueError as error:
            raise UsageError(f"--{error}") from None
    rounding = args.rounding or default_rounding(args.mechanism)
    return LabelColumn(args.label, tuple(labels.tolist()), args.id_column, rounding)


def _label_values(path: str) -> np.ndarray:
    try:
        with FileSystems.open(path) as file:
            labels = np.array([float(line) for line in file.read().decode().split()])
        check_domain(labels)
    except ValueError as error:
        raise UsageError(f"--label_values {path}: one number a line, strictly ascending ({error})") from None
    except Exception:
        raise UsageError(f"--label_values {path} cannot be read: check the path") from None
    return labels


def _where(text: str | None, column: LabelColumn) -> Equals | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--where takes NAME=VALUE, not {text!r}")
    if name == column.name:
        raise UsageError("--where must not look at the label: which records are released would depend on it")
    return Equals(name, value)


def _check_solvable(args: argparse.Namespace, column: LabelColumn) -> None:
    if args.delta is not None and args.mechanism in MECHANISMS and not takes_delta(args.mechanism):
        raise UsageError(f"--delta is for mechanisms that are not pure, as gaussian, and {args.mechanism} is")
    try:
        mechanism_named(args.mechanism, loss=args.loss, **parse_parameters(args.mechanism_parameters, args.delta))
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    try:
        loss_named(args.loss).check(column.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    try:
        check_epsilon(args.epsilon)
        if args.prior_epsilon is not None:
            split_budget(args.epsilon, 1, 1, args.prior_epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _schema(args: argparse.Namespace) -> str | None:
    """The schema of the features; None when none was given."""
    if args.validate or args.schema is not None:
        check_extra("--validate", "tfx", "tensorflow_data_validation", "tensorflow_metadata")
    if args.schema is None:
        return None
    try:
        return without_feature(read_text(args.schema), args.label)
    except InputError as error:
        raise UsageError(f"--schema {error}") from None
    except ValueError as error:
        raise UsageError(f"--schema {args.schema}: {error}") from None


def _check_target(flag: str, target: str) -> None:
    """Raises UsageError unless the target can be made where it is: it is new, or an empty folder."""
    if not target.strip():
        raise UsageError(f"{flag} is empty: name a place")
    if set(target) & set("*?[]"):
        raise UsageError(f"{flag} {target}: Beam takes *, ?, [ and ] for a pattern: name a place without them")
    if is_remote(target):
        if FileSystems.exists(target) or FileSystems.match([FileSystems.join(target, "*")], [1])[0].metadata_list:
            raise UsageError(f"{flag} {target} exists and is not empty: name another, or delete it")
        return
    folder = flag == "--output"
    empty = folder and os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target)
    if os.path.lexists(target) and not empty:
        kind = "exists and is not an empty folder" if folder else "exists"
        raise UsageError(f"{flag} {target} {kind}: name another, or delete it")
    check_parent(flag, target)


def _ledger(path: str | None, target: str) -> str:
    found = absolute(path) if path else ledger_beside(absolute(target))
    if not is_remote(found):
        if os.path.isdir(found):
            raise UsageError(f"--ledger {found} is a folder: name a file")
        if not is_remote(target) and _inside(found, target):
            raise UsageError(f"--ledger {found} lies inside --output, which is released: keep it elsewhere")
        if not os.path.lexists(found):
            check_parent("--ledger", found)
        elif not os.access(found, os.R_OK | os.W_OK):
            raise UsageError(f"--ledger {found} cannot be read and written: what is released is written down there")
    return found


def _made(key: NoiseKeyFile) -> bool:
    try:
        return key.create()
    except OSError as error:
        raise UsageError(
            f"--noise_key_file is missing, and {key.path} cannot be made ({error.strerror}): name a file of 32 secret "
            "bytes, mode 0600"
        ) from None


def _inside(path: str, folder: str) -> bool:
    return os.path.commonpath([path, absolute(folder)]) == absolute(folder)


def _key(path: str | None, target: str) -> NoiseKeyFile:
    key = NoiseKeyFile(absolute(path) if path else _default_key_path())
    if path is None and _made(key):
        LOGGER.info("made a secret noise key: %s (keep it private; the README says when to destroy it)", key.path)
    if not is_remote(key.path) and not is_remote(target) and _inside(key.path, target):
        raise UsageError(f"--noise_key_file {key.path} lies inside --output, which is released: keep it elsewhere")
    try:
        key.load()
    except InputError as error:
        raise UsageError(f"--noise_key_file: {error}") from None
    return key


def _default_key_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "labeldp", "noise.key")
