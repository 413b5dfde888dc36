"""Fields of a request: types, choices, and messages that name them as each face does."""

import ast
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.pipelines.cli.commands import COMMANDS, command_parser
from labeldp.pipelines.errors import FieldError, as_flag, as_parameter
from labeldp.pipelines.ledger.spent_budget import CapError
from labeldp.pipelines.spec.fields import Fields, names_of, pairs_of

ROOT = Path(__file__).parents[3]


def test_every_flag_of_a_release_is_a_field_and_every_field_a_flag() -> None:
    flags = {action.dest for name in ("privatize", "fit", "apply") for action in command_parser(name).flags().values()}
    # The last three are about the run of a command.
    own = {"config", "help", "if_exists", "result_json", "verbose", "wait_until_finish"}
    assert {*Fields.__dataclass_fields__} == flags - own


def test_flags_that_are_not_given_are_fields_that_are_not_given() -> None:
    """The defaults of the parser are those of the fields, so that Python and YAML have the same."""
    parser = command_parser("privatize")
    given = {action.dest: action.default for action in parser.flags().values()}
    assert Fields.of({**given, "label": "y"}) == Fields(label="y")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epsilon", 1, 1.0),
        ("epsilon", np.float64(0.5), 0.5),
        ("num_shards", np.int64(3), 3),
        ("label_min", 0.1, "0.1"),
        ("label_min", 7, "7"),
        ("input", Path("/a/b"), "/a/b"),
        ("label_values", np.array([0.0, 2.0]), (0.0, 2.0)),
        ("label_values", "domain.txt", "domain.txt"),
        ("center_features", ["a", "b,c"], ("a", "b,c")),
        ("csv_types", {"a": "string"}, {"a": "string"}),
        ("validate", True, True),
        ("validate", Path("a.pbtxt"), "a.pbtxt"),
        ("for_", "labels", "labels"),
    ],
)
def test_values_of_every_kind(name: str, value: Any, expected: Any) -> None:
    found = getattr(Fields.of({"label": "y", name: value}), name)
    assert (found, type(found)) == (expected, type(expected))


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Fields.of({"label": "y", "ledger": "postgresql://me:secret@host/db"}))


def test_unknown_keywords_are_named() -> None:
    for keyword in ("labels", "for", "help"):
        with pytest.raises(ValueError, match=f"^Release has no parameter '{keyword}': see labeldp privatize --help$"):
            Fields.of_keywords({"label": "y", keyword: "x"}, "Release")
    assert Fields.of_keywords({"label": "y", "for_": "labels"}, "Release").for_ == "labels"
    with pytest.raises(FieldError, match=r"^--label is missing$"):
        Fields.of_keywords({}, "Release")


def test_names_and_pairs_are_text_or_python() -> None:
    assert names_of(None) == ()
    assert names_of("a,b") == names_of(["a", "b"]) == ("a", "b")
    assert pairs_of("a=1,b=x=y", "NAME=VALUE", "{csv_types}") == {"a": "1", "b": "x=y"}


def test_an_error_is_said_in_the_words_of_each_face() -> None:
    """Braces of a value, such as those of a path, are no names."""
    error = FieldError("{for} and {label_step} {value!r} of {path}", value=0.1, path="/{epsilon}/{0}")
    assert str(error) == error.text(as_flag) == "--for and --label_step 0.1 of /{epsilon}/{0}"
    assert error.text(as_parameter) == "for_ and label_step 0.1 of /{epsilon}/{0}"
    assert FieldError.of(ValueError("epsilon must be {0}")).text(as_parameter) == "epsilon must be {0}"
    assert str(FieldError.at("loss", "{x}")) == "--loss: {x}"
    more = CapError("{epsilon_cap} {cap:g} would be exceeded", cap=3).extended("; {again}", again="{y}")
    assert (type(more), str(more)) == (CapError, "--epsilon_cap 3 would be exceeded; {y}")


def test_messages_name_fields_that_exist() -> None:
    """A misspelled name in braces would be shown as a flag that no command has."""
    known = {name for command in COMMANDS for name in command_parser(command).flags()}
    known |= {"no_validate", "no_wait_until_finish"}
    found = 0
    for path in (ROOT / "pipelines").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in ("FieldError", "CapError"):
                continue
            text, values = node.args[0], {keyword.arg for keyword in node.keywords}
            if not isinstance(text, ast.Constant) or None in values:
                continue  # made from parts
            fields = {name for _, name, _, _ in string.Formatter().parse(str(text.value)) if name is not None}
            assert fields <= known | values, (path.name, node.lineno, fields - known - values)
            found += 1
    assert found > 40
