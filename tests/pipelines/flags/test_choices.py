"""The choices in the help are those of the code, which the help does not load; lists are read in every spelling."""

import pytest
from labeldp.mechanisms import LOSSES, MECHANISMS
from labeldp.mechanisms.core.label_grid import ROUNDINGS
from labeldp.mechanisms.registry import AUTO
from labeldp.pipelines.cli.commands import command_parser
from labeldp.pipelines.flags.arguments import ArgumentParser, with_lists
from labeldp.pipelines.spec import fields as choices
from labeldp.transforms.io.csv_dialect import COMMA
from labeldp.transforms.io.input_format import CSV_TYPES, FORMATS
from labeldp.transforms.shards.shard_writer import COMPRESSIONS


def test_choices_are_those_of_the_code() -> None:
    assert choices.INPUT_FORMATS == FORMATS
    assert choices.CSV_TYPES == CSV_TYPES
    assert tuple(vars(COMMA)) == choices.DIALECT
    assert choices.COMPRESSIONS == COMPRESSIONS
    assert choices.ROUNDINGS == ROUNDINGS
    assert tuple(LOSSES) == choices.LOSSES
    assert choices.AUTO == AUTO
    assert sorted(choices.MECHANISMS) == sorted(MECHANISMS)


def test_models_are_those_of_the_code() -> None:
    from labeldp.study.models import MODELS

    assert tuple(MODELS) == choices.MODELS


@pytest.mark.parametrize(
    ("command", "given", "name", "wanted"),
    [
        *(("attack", given, "exclude", "a,b") for given in ("--exclude a b", "--exclude a,b", "--exclude a, b")),
        ("attack", "--csv_types a=date b=string released", "csv_types", "a=date,b=string"),
        *(("privatize", given, "leave_out", "a,b,c") for given in ("--leave_out a b,c --seed 1", "--leave_out=a,b,c")),
        *(("evaluate", given, "feature", ["a", "b", "c"]) for given in ("--feature a,b c", "--feature=a,b,c")),
        ("evaluate", "--epsilon 1,2 .5", "epsilon", [1, 2, 0.5]),
        ("compare", "--mechanism rr,a:b=1,c=2,d", "mechanism", ["rr", "a:b=1,c=2", "d"]),
        ("init", "in.csv --csv_dialect decimal=,,columns=a,b,delimiter=;", "csv_dialect",
         ["decimal=,", "columns=a,b", "delimiter=;"]),
    ],
)  # fmt: skip
def test_lists_have_commas_or_spaces(command: str, given: str, name: str, wanted: object) -> None:
    parser = command_parser(command)
    found = ArgumentParser.parse_known_args(parser, with_lists(given.split(), parser.flags()))[0]
    assert getattr(found, name) == wanted
