"""Parser of one command: flags in titled groups, made when they are first needed, and those that the command needs."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from ..errors import FieldNames, UsageError, as_flag, did_you_mean
from ..spec.fields import Fields, declared, flag_name, kinds_of
from ..spec.written_files import check_written
from .arguments import ArgumentParser, with_lists

if TYPE_CHECKING:
    from .config_file import Config

_WIDTH = 80
_REQUIRED = " (required)"
_CONFIG_HELP = "YAML file of flags, a line NAME: VALUE for each"
_PATH = re.compile(r"\b(FILE|FOLDER|DIR|GLOB|KEY|PUB|TABLE|RELEASE|URL)\b")

Add = Callable[..., None]
"""Adds a flag to a group.

It takes the arguments of argparse's `add_argument`, `needed=True` for a required flag, and as `writes` the kind of the
file that the flag names to be written, of `spec/written_files`.
"""


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps texts, except those with line breaks of their own, such as an example to be copied."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        # An opposite has no value.
        return re.sub(r"(--no_\w+) \[\w+\]", r"\1", super()._format_action_invocation(action))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return textwrap.indent(text, indent)
        return super()._fill_text(text, width, indent)


@dataclass(frozen=True)
class Mode:
    """Mode of a command, which a switch or a flag with a value turns on, with flags of its own.

    Attributes:
      switch: Name of the switch, without dashes.
      flags: Names of the flags that the mode takes, and the command without a mode does not.
      needed: Names of those that it requires.
      without: Names of flags of the command that it does not take.
      optional: Names of flags that the command requires, and this mode takes without requiring them.
    """

    switch: str
    flags: Collection[str]
    needed: Collection[str]
    without: Collection[str]
    optional: Collection[str]


class Switch(argparse.Action):
    """A flag `--NAME`, and its opposite, `--no_NAME`: true and false. The default is None, for neither.

    With `nargs` "?", `--NAME` may have a value, which then is that of the flag.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, nargs: int | str = 0, **settings: Any):
        """Adds the opposite."""
        negated = [f"--no_{name.removeprefix('--')}" for name in option_strings]
        super().__init__([*option_strings, *negated], dest, nargs, **settings)

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None):
        on = not str(option_string).startswith("--no_")
        if values and not on:
            parser.error(f"{option_string} takes no value, not {values!r}")
        setattr(namespace, self.dest, values if isinstance(values, str) else on)


def field_flags(add: Add, *names: str, **changed: Any) -> None:
    """Adds the flags of fields of a release, as `spec.fields` declares them; `changed` are settings of this command."""
    for name in names:
        each, kinds = declared(Fields)[name], kinds_of(Fields)[name]
        settings = {
            "help": FieldNames(each.metadata["line"]).text(as_flag),
            "default": None if each.default is MISSING else each.default,
            "writes": each.metadata["writes"],
        }
        if bool in kinds:
            optional = {"nargs": "?", "metavar": each.metadata["metavar"]} if str in kinds else {}
            settings |= {"action": Switch, **optional}
        else:
            settings["metavar"] = each.metadata["metavar"]
            settings["type"] = next((kind for kind in (int, float) if kind in kinds and str not in kinds), None)
            settings["choices"] = each.metadata["choices"] or None
        if flag_name(name) != name:
            settings["dest"] = name
        add(f"--{flag_name(name)}", **{**settings, **changed})


class CommandParser(ArgumentParser):
    """Parser of one command. Its flags are added when it parses for the first time.

    Attributes:
      needed: Names of the required flags, without dashes.
      domain_needed: Whether the command needs a label domain, in one of its two forms.
      hints: Advice by the name of a flag that the command does not take.
      modes: Modes with flags of their own.
      first: Name of the required flag whose value may come right after the command, without the flag; None if none may.
      writes: Kind of each file or folder that a flag names to be written, by the name of the flag.
    """

    def __init__(
        self,
        make: Callable[[CommandParser], None],
        runner_flags: Callable[[], Sequence[str]] | None = None,
        **settings: Any,
    ):
        """Prepares the parser of a command; `make` adds the flags and the description.

        With `runner_flags`, the command passes unknown flags to Beam; it lists the names of those, and loads Beam.
        """
        super().__init__(**settings, add_help=False, formatter_class=_HelpFormatter)
        self.needed: list[str] = []
        self.domain_needed = False
        self.first: str | None = None
        self.hints: Mapping[str, str] = {}
        self.modes: list[Mode] = []
        self.writes: dict[str, str] = {}
        self.runner_flags = runner_flags
        self._without: Collection[str] = ()
        self._make: Callable[[CommandParser], None] | None = make

    def load(self) -> CommandParser:
        """Adds the flags, unless they were added before; returns itself."""
        if self._make is not None:
            make, self._make = self._make, None
            make(self)
            others = self.flag_group("Other")
            if not self.positionals():
                others("--config", metavar="FILE", help=_CONFIG_HELP)
            others("-h", "--help", action="help", help="show this help and exit")
            self.usage = self._usage()
        return self

    def leave_out(self, flags: Mapping[str, str] | Collection[str]) -> None:
        """Leaves flags out of the groups that are added from now on. They get their defaults.

        Names are without dashes; a mapping has advice for users who give one.
        """
        self._without = flags
        if isinstance(flags, Mapping):
            self.hints = flags

    def add_mode(
        self,
        switch: str,
        groups: Sequence[Callable[[CommandParser], None]],
        without: Collection[str],
        optional: Collection[str],
        shared: Collection[str] = (),
    ) -> None:
        """Adds the flags of a mode. Those that it requires are required with its switch alone.

        Names are without dashes. `groups` add flags of the mode, `without` are flags of the command that the mode does
        not take, and `optional` those that the command requires and the mode does not. `shared` are flags of other
        modes that this one takes, too.
        """
        before, needed = set(self.flags()), self.needed
        self.needed = []
        for add_flags in groups:
            add_flags(self)
        actions = self.flags()
        for name in self.needed:
            actions[name].help = f"{str(actions[name].help).removesuffix(_REQUIRED)} (required with --{switch})"
        own = {*set(actions) - before, *shared}
        self.modes.append(Mode(switch, own, self.needed, without, optional))
        self.needed = needed

    def flag_group(self, title: str, description: str | None = None) -> Add:
        """Starts a titled group of flags, or continues it; returns the function that adds a flag to it."""
        known = {group.title: group for group in self._action_groups}
        group = known.get(title) or self.add_argument_group(title, description)

        def add(*names: str, needed: bool = False, writes: str | None = None, **settings: Any) -> None:
            name = names[-1].lstrip("-")
            if name in self._without:
                self.set_defaults(**{settings.get("dest", name): settings.get("default")})
                return
            if needed:
                self.needed.append(name)
                settings["help"] += _REQUIRED
            if writes is not None:
                self.writes[name] = writes
            group.add_argument(*names, **settings)

        return add

    def flags(self) -> dict[str, argparse.Action]:
        """Action of each flag, by its name without dashes. The opposite of a switch is not a flag of its own."""
        self.load()
        named = [action for action in self._actions if action.option_strings]
        return {next(s for s in action.option_strings if s[:2] == "--").lstrip("-"): action for action in named}

    def positionals(self) -> list[argparse.Action]:
        """Actions of the arguments without a name."""
        self.load()
        return [action for action in self._actions if not action.option_strings]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses arguments, and checks that the required flags are given.

        Returns the values, and the arguments that are unknown here.
        """
        self.load()
        given = list(sys.argv[1:] if args is None else args)
        try:
            _check_values(given)
            given = with_lists(self._with_first(given), self.flags())
            config = self._config(given)
            # The last value of a flag counts.
            found, others = super().parse_known_args([*(config.arguments if config else ()), *given], namespace)
            self._check_needed(found, config, others)
            if config is not None:
                found.config_lines = _lines_of_values(config, given)
        except UsageError as error:
            self.error(str(error))
        return found, others

    def _with_first(self, given: list[str]) -> list[str]:
        """The arguments with the flag of the value that comes first without it."""
        if self.first is None or self.positionals() or not given or given[0][:1] in ("-", ""):
            return given
        flag = f"--{self.first}"
        if any(argument.partition("=")[0] == flag for argument in given):
            raise UsageError(f"{flag} and {given[0]!a} both name the input: give one of them")
        return [f"{flag}={given[0]}", *given[1:]]

    def _config(self, given: Sequence[str]) -> Config | None:
        actions = self.flags()
        if "config" not in actions:
            return None
        finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        finder.add_argument("--config")
        try:
            path = finder.parse_known_args(given)[0].config
        except argparse.ArgumentError:
            path = None  # The whole command line is refused for the same reason.
        if path is None:
            return None
        from .config_file import read_config

        return read_config(path, actions, self.hints, self.runner_flags or tuple)

    def _check_needed(self, args: argparse.Namespace, config: Config | None, others: Sequence[str]) -> None:
        actions = self.flags()
        missing = [name for name in self._needed_flags(args) if getattr(args, actions[name].dest) is None]
        domain = ["label_max"] if self.domain_needed and args.label_max is None else []
        if domain and (args.label_values is not None or getattr(args, "label_classes", None) is not None):
            domain = []
        empty = [name for name in (*missing, *domain) if config is not None and name in config.empty]
        if config is not None and empty:
            empty.sort(key=lambda name: config.empty[name])
            lines = ", ".join(f"{name} (line {config.empty[name]})" for name in empty)
            rest = [name for name in (*missing, *domain) if name not in config.empty]
            more = f"; {join_names(rest)} {'is' if len(rest) == 1 else 'are'} missing, too" if rest else ""
            raise UsageError(f"{config.path}: fill in {lines}{more}")
        if missing or domain:
            self._check_misspelled(others)
        if missing:
            purpose = f": {str(actions[missing[0]].help).removesuffix(_REQUIRED)}" if len(missing) == 1 else ""
            raise UsageError(f"{join_names(missing)} {'is' if len(missing) == 1 else 'are'} missing{purpose}")
        if domain:
            raise UsageError(
                "the public label domain is missing: give --label_max, and --label_min and --label_step where they are "
                "not 0 and 1, or --label_values"
                + (", or for classes --label_classes" if hasattr(args, "label_classes") else "")
            )

    def paths(self) -> dict[str, argparse.Action]:
        """Actions that take the path of a file or folder, by the name of the flag or argument."""
        actions = {**self.flags(), **{action.dest: action for action in self.positionals()}}
        return {name: each for name, each in actions.items() if _PATH.search(str(each.metavar))}

    def check_written(self, args: argparse.Namespace) -> None:
        """Checks that no file is lost where the command writes. Raises UsageError."""
        given = []
        for name, action in self.paths().items():
            value = getattr(args, action.dest)
            values = value if isinstance(value, list) else [value]
            given += [(name, each) for each in values if isinstance(each, str) and each.strip() and "\0" not in each]
        named = {name: name if name not in self.flags() else f"--{name}" for name, _ in given}
        named |= {action.dest: str(action.metavar) for action in self.positionals()}
        written = {name: path for name, path in given if name in self.writes}
        read = [(name, path) for name, path in given if name not in self.writes]
        check_written(written, self.writes, read, named)

    def _needed_flags(self, args: argparse.Namespace) -> Sequence[str]:
        """Names of the required flags. Checks that no flag of another mode is given."""
        actions = self.flags()
        chosen = [mode for mode in self.modes if getattr(args, mode.switch)]
        if len(chosen) > 1:
            raise UsageError(f"--{chosen[0].switch} and --{chosen[1].switch} exclude each other: give one of them")
        taken = {name for mode in chosen for name in mode.flags}
        for name in dict.fromkeys(name for mode in self.modes for name in sorted(mode.flags)):
            if name not in taken and getattr(args, actions[name].dest) != actions[name].default:
                switches = [f"--{mode.switch}" for mode in self.modes if name in mode.flags]
                raise UsageError(f"--{name} needs {' or '.join(switches)}")
        if not chosen:
            return self.needed
        (mode,) = chosen
        for name in mode.without:
            if getattr(args, actions[name].dest) != actions[name].default:
                raise UsageError(f"--{name} is not for --{mode.switch}: leave it out")
        return [*mode.needed, *(name for name in self.needed if name not in mode.optional)]

    def _check_misspelled(self, others: Sequence[str]) -> None:
        """Reports an unknown flag that is like one of the command: a required flag may be missing because of it.

        Whether the runner knows it is not asked here, because that would load Beam.
        """
        for argument in others:
            name = argument.partition("=")[0].lstrip("-")
            if argument.startswith("--") and (name in self.hints or did_you_mean(name, self.flags())):
                raise UsageError(self.advice(argument))

    def advice(self, argument: str, more: Sequence[str] = ()) -> str:
        """Explains an argument that no parser knows, in one line.

        `more` are names, without dashes, of flags that are known elsewhere, such as those of the runner.
        """
        if not argument.startswith("-"):
            one = "".join(f"give one {action.metavar}; " for action in self.positionals())
            return f"no flag takes {argument!a}: {one}quote a glob, and text with spaces; lists have commas"
        flag = argument.partition("=")[0]
        name = flag.lstrip("-")
        if name in self.hints:
            return self.hints[name]
        known = list(self.flags())
        return f"unknown flag {flag}{did_you_mean(name, known, '--') or did_you_mean(name, more, '--')}"

    def _usage(self) -> str:
        """Usage with the required flags alone: that of argparse lists all of them, over a screen."""
        actions = self.flags()
        parts = [str(action.metavar or action.dest) for action in self.positionals()]
        for name in _with_domain(self.needed) if self.domain_needed else self.needed:
            if name == self.first:
                parts.append(str(actions[name].metavar))
                continue
            parts.append(f"--{name} {actions[name].metavar or ''}".rstrip())
        indent = " " * len(f"usage: {self.prog} ")
        # Flags stay on one line with their values.
        text = textwrap.fill(
            " ".join(part.replace(" ", "\0") for part in [*parts, "[flags]"]), _WIDTH - 2,
            initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return f"{self.prog} {text.lstrip()}".replace("\0", " ").replace("%", "%%")


def _with_domain(names: Sequence[str]) -> list[str]:
    """The names, with that of the label domain after the label."""
    after = names.index("label") + 1
    return [*names[:after], "label_max", *names[after:]]


def _lines_of_values(config: Config, given: Sequence[str]) -> dict[str, str]:
    """File and line of each flag whose value is that of the config file, by its name."""
    names = {argument.partition("=")[0].lstrip("-").removeprefix("no_") for argument in given}
    return {name: f"{config.path}, line {line}" for name, line in config.lines.items() if name not in names}


def join_names(names: Sequence[str]) -> str:
    """Joins at least one name of a flag, without dashes, to text such as "--input, --label and --output"."""
    flags = [f"--{name}" for name in names]
    return flags[0] if len(flags) == 1 else f"{', '.join(flags[:-1])} and {flags[-1]}"


def _check_values(given: Sequence[str]) -> None:
    """Refuses the value --, of which argparse makes an empty list (Python 3.11)."""
    for argument in given:
        name, equals, value = argument.partition("=")
        if name.startswith("--") and equals and value == "--":
            raise UsageError(f"{name} takes a value, not --")
