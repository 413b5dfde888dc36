"""Flags that describe the input: files, format, filter, label column and label domain. `evaluate` has them too.

Functions raise UsageError, which names the flag, if a flag is wrong, malformed or missing.
"""

from __future__ import annotations

import argparse

import numpy as np

from ...mechanisms.core.label_grid import NEAREST, DeclaredGrid, check_domain, label_grid, working_grid
from ...mechanisms.registry import default_rounding
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.errors import InputError
from ...transforms.io.csv_dialect import Dialect
from ...transforms.io.filesystems import absolute, match, open_input
from ...transforms.io.input_format import Equals, Format, file_parts
from ..errors import UsageError
from ..flags.choices import PARTITIONS
from .job_request import InputSpec
from .mechanism_file import MechanismFile


def input_spec(args: argparse.Namespace) -> InputSpec:
    """Finds the input files and checks the flags that describe them; at least one file must match."""
    format, where = input_format(args), where_filter(args.where, args.label)
    try:
        pattern = absolute(args.input)
        sizes = match(pattern)
        parts = tuple(file_parts(list(sizes), format))
    except InputError as error:
        raise UsageError(str(error)) from None
    for path in sizes:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(f"--input {path!a}: the file name is not UTF-8; rename the file") from None
    input = InputSpec(pattern, parts, sum(sizes.values()) / len(sizes), format, where)
    check_no_folder(input, "label", args.label)
    check_no_folder(input, "id_column", args.id_column)
    return input


def check_no_folder(input: InputSpec, flag: str, name: str | None) -> None:
    """Checks that a column, if there is one, is not one of those that the input's folders are named by."""
    if name in [partition.name for partition in input.parts[0].partitions]:
        raise UsageError(
            f"--{flag} {name} is a folder of the input, {name}=..., whose name is public and the same for all "
            "records in it: name a column in the files"
        )


def input_format(args: argparse.Namespace) -> Format:
    """Reads `--input_format`, `--csv_types`, the flags of the CSV dialect and `--partitions`."""
    try:
        return Format(
            args.input_format,
            _csv_types(args.csv_types),
            partitions=args.partitions == PARTITIONS[0],
            dialect=csv_dialect(args),
        )
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def csv_dialect(args: argparse.Namespace) -> Dialect:
    """Reads the flags of the CSV dialect."""
    columns = () if args.csv_columns is None else tuple(args.csv_columns.split(","))
    try:
        return Dialect(args.csv_delimiter, args.csv_encoding, args.csv_decimal, args.csv_thousands or "", columns)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


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


def where_filter(text: str | None, label: str) -> Equals | None:
    """Reads `--where`, NAME=VALUE, which must not name the label; None without it."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--where takes NAME=VALUE, not {text!r}")
    if name == label:
        raise UsageError("--where must not use the label: the choice of released records would depend on it")
    return Equals(name, value)


def label_column(
    args: argparse.Namespace,
    domain: tuple[float, ...],
    mechanism: str,
    fitted: MechanismFile | None,
    others: tuple[str, ...] = (),
    declared: DeclaredGrid | None = None,
) -> LabelColumn:
    """Reads the flags of the label column.

    `domain` holds the labels that the mechanism uses, and `declared` is the declared grid, if the domain is a coarser
    one. The mechanism's name sets the default rounding; the mechanism file of `apply`, which is None for the other
    commands, sets rounding and center. `others` are further private columns that are released with this one.
    """
    if args.id_column == args.label:
        raise UsageError("--id_column must be another column than --label")
    if fitted is not None:
        center, rounding = None if fitted.center is None else fitted.center.column, fitted.rounding
    else:
        center, rounding = args.center_column, args.rounding or default_rounding(mechanism, declared is not None)
    if center == args.label:
        named = "--center_column must be" if fitted is None else "the center of --mechanism_file must be"
        raise UsageError(f"{named} another column than --label: the center is released as it is")
    try:
        groups = None if fitted is None or fitted.center is None else fitted.center.groups
        return LabelColumn(
            args.label, domain, args.id_column, rounding, center, groups, others=others, declared=declared
        )
    except ValueError as error:
        flag = "--center_column" if fitted is None else f"--mechanism_file {args.mechanism_file}"
        if fitted is None and declared is not None and rounding == NEAREST:
            flag = "--rounding"
        raise UsageError(f"{flag}: {error}") from None


def label_domain(args: argparse.Namespace) -> tuple[float, ...]:
    """Reads the public label domain, from a grid or from a file: k labels, strictly ascending.

    UsageError is also raised if the domain is given twice.
    """
    grid = [args.label_min, args.label_max, args.label_step]
    if args.label_values is not None:
        if any(flag is not None for flag in grid):
            raise UsageError("--label_values replaces --label_min, --label_max and --label_step: give one or the other")
        return tuple(_label_values(args.label_values).tolist())
    if any(flag is None for flag in grid):
        raise UsageError(
            "the public label domain is missing: give --label_min, --label_max and --label_step, or --label_values"
        )
    try:
        return tuple(label_grid(*grid).tolist())
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def working_domain(args: argparse.Namespace, epsilon: float) -> tuple[tuple[float, ...], DeclaredGrid | None]:
    """Reads the public label domain, and chooses the labels of it that a mechanism uses; strictly ascending.

    `epsilon` is the budget of the label. The declared grid is None if all of it is used. UsageError is also raised if
    epsilon is out of range.
    """
    domain = label_domain(args)
    try:
        labels, declared = working_grid(np.array(domain), epsilon)
    except ValueError as error:
        place = "" if str(error).startswith("epsilon") else f"label_values {args.label_values}: "
        raise UsageError(f"--{place}{error}") from None
    return tuple(labels.tolist()), declared


def _label_values(path: str) -> np.ndarray:
    try:
        with open_input(path) as file:
            labels = np.array([float(line) for line in file.read().decode().split()])
        check_domain(labels)
    except ValueError as error:
        raise UsageError(f"--label_values {path}: give one number per line, strictly ascending ({error})") from None
    except Exception:
        raise UsageError(f"--label_values {path} cannot be read: check the path") from None
    return labels
