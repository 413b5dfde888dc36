"""Flags that describe the input: files, format, filter, label column and label domain. `evaluate` has them too."""

from __future__ import annotations

import argparse

import numpy as np

from ...mechanisms.core.label_grid import DeclaredGrid, check_domain, label_grid, working_grid
from ...mechanisms.core.label_rounding import NEAREST
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
    """Finds the input files and checks the flags that describe them.

    Args:
      args: Parsed flags; reads input, where, label, id_column and those of the format.

    Returns:
      The input.

    Raises:
      UsageError: If a flag is wrong or no file matches; names the flag.
    """
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
    """Checks that a column is not one of those that the input's folders are named by.

    Args:
      input: The input.
      flag: The flag that names the column.
      name: Name of the column; None for none.

    Raises:
      UsageError: If it is; names the flag.
    """
    if name in [partition.name for partition in input.parts[0].partitions]:
        raise UsageError(
            f"--{flag} {name} is a folder of the input, {name}=..., whose name is public and the same for all "
            "records in it: name a column in the files"
        )


def input_format(args: argparse.Namespace) -> Format:
    """Reads `--input_format`, `--csv_types`, the flags of the CSV dialect and `--partitions`.

    Args:
      args: Parsed flags.

    Returns:
      The file format.

    Raises:
      UsageError: If a type is unknown or `--csv_types` is malformed.
    """
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
    """Reads the flags of the CSV dialect.

    Args:
      args: Parsed flags.

    Returns:
      The dialect.

    Raises:
      UsageError: If a flag is wrong; names the flag.
    """
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
    """Reads `--where`.

    Args:
      text: NAME=VALUE, or None.
      label: Name of the label column, which the filter must not use.

    Returns:
      The filter; None if there is none.

    Raises:
      UsageError: If the text is malformed or names the label.
    """
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

    Args:
      args: Parsed flags.
      domain: The labels that the mechanism uses.
      mechanism: Mechanism name, which sets the default rounding.
      fitted: Mechanism file of `apply`, which sets rounding and center; None for the other commands.
      others: Further private columns that are released with this one.
      declared: The declared grid, if the domain is a coarser one.

    Returns:
      The label column.

    Raises:
      UsageError: If a flag is wrong; names the flag.
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
    """Reads the public label domain, from a grid or from a file.

    Args:
      args: Parsed flags; reads label_min, label_max, label_step and label_values.

    Returns:
      The k labels, strictly ascending.

    Raises:
      UsageError: If the domain is missing, given twice or malformed.
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
    """Reads the public label domain, and chooses the labels of it that a mechanism uses.

    Args:
      args: Parsed flags; reads label_min, label_max, label_step and label_values.
      epsilon: Budget of the label.

    Returns:
      The labels, strictly ascending, and the declared grid; None if all of it is used.

    Raises:
      UsageError: If the domain is missing, given twice or malformed, or epsilon is out of range.
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
