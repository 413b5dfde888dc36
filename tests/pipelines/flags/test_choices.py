"""The choices in the help are those of the code, which the help does not load."""

from labeldp.mechanisms import LOSSES, MECHANISMS
from labeldp.mechanisms.core.label_grid import ROUNDINGS
from labeldp.mechanisms.registry import AUTO
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
