"""Summaries of validation/ folders that the tests write."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from labeldp.report.report_input import Column, read_validation
from labeldp.transforms.errors import InputError
from labeldp.transforms.validation.tensorflow_libraries import parse_statistics

from tests.release_cases import over

AGE = """
features { path { step: "age" } type: INT num_stats { mean: %s min: 1 max: 9
    common_stats { num_non_missing: 8 num_missing: 2 tot_num_values: 8 } } }
"""
TEXT = """
features { path { step: "t" } type: STRING string_stats { unique: 3 top_values { value: "x" frequency: %s }
    common_stats { num_non_missing: 10 tot_num_values: 10 } } }
"""
LABEL = """
features { path { step: "y" } type: FLOAT num_stats { mean: 2.5 min: 1.5 max: 3.5
    common_stats { num_non_missing: 10 tot_num_values: 10 } } }
"""


@pytest.fixture
def statistics(tmp_path: Path) -> Any:
    """Function (features before, features after, anomalies) -> the folder of a release."""

    def write(before: str, after: str, anomalies: str = "") -> str:
        folder = tmp_path / "validation"
        folder.mkdir()
        for name, features in (("feature", before), ("output", after)):
            message = parse_statistics(b"")
            text_format.Parse(f"datasets {{ num_examples: 10 {features} }}", message)
            (folder / f"{name}_stats.pb").write_bytes(message.SerializeToString())
        (folder / "anomalies.pbtxt").write_text(anomalies)
        return str(tmp_path)

    return write


def test_columns_by_name_and_the_label_apart(statistics: Any) -> None:
    found = read_validation(statistics(TEXT % 5 + AGE % 4, LABEL + AGE % 4 + TEXT % 5), "y")

    assert found is not None
    assert (found.before, found.after) == (10, 10)
    assert found.features == [
        Column("age", "integer", 8, 2, True, low=1, mean=4, high=9),
        Column("t", "text", 10, 0, True, distinct=3),
    ]
    assert found.label == Column("y", "float", 10, 0, False, low=1.5, mean=2.5, high=3.5, added=True)


@pytest.mark.parametrize(
    ("before", "unchanged"),
    [
        (TEXT % 5 + AGE % "4.0000000001", [True, True]),
        (TEXT % 5 + AGE % "4.1", [False, True]),
        (TEXT % 4 + AGE % 4, [True, False]),
        (TEXT % 5 + AGE.replace("type: INT", "type: FLOAT") % 4, [False, True]),
        (TEXT % 5 + AGE.replace("max: 9", "max: 8") % 4, [False, True]),
        (TEXT % 5 + AGE.replace("num_non_missing: 8", "num_non_missing: 7") % 4, [False, True]),
        (TEXT % 5, [False, True]),
    ],
)
def test_what_has_changed_is_seen(statistics: Any, before: str, unchanged: list[bool]) -> None:
    found = read_validation(statistics(before, LABEL + AGE % 4 + TEXT % 5), "y")

    assert found is not None
    assert [column.unchanged for column in found.features] == unchanged


def test_a_release_need_not_be_validated(tmp_path: Path) -> None:
    assert read_validation(str(tmp_path), "y") is None


@pytest.mark.parametrize(
    ("before", "after"), [(AGE % 4, AGE % 4), (AGE % 4 + LABEL, AGE % 4 + LABEL), (AGE % 4 + TEXT % 5, AGE % 4 + LABEL)]
)
def test_statistics_of_two_releases(statistics: Any, before: str, after: str) -> None:
    """Cases: no label in the output; a label among the input features; a missing feature."""
    with pytest.raises(InputError, match="are statistics of different releases"):
        read_validation(statistics(before, after), "y")


def test_anomalies_are_told(statistics: Any) -> None:
    anomalies = 'anomaly_info { key: "age" value { short_description: "Bad" description: "worse" } }'
    with pytest.raises(InputError, match="validation has anomalies: feature age: Bad: worse"):
        read_validation(statistics(AGE % 4, AGE % 4 + LABEL, anomalies), "y")


@pytest.mark.parametrize("name", ["feature_stats.pb", "output_stats.pb", "anomalies.pbtxt"])
@pytest.mark.parametrize("damage", ["missing", "nonsense"])
def test_damage_is_named(statistics: Any, tmp_path: Path, name: str, damage: str) -> None:
    statistics(AGE % 4, AGE % 4 + LABEL)
    path = tmp_path / "validation" / name
    path.unlink()
    if damage == "nonsense":
        path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(InputError, match=rf"validation/{name}"):
        read_validation(str(tmp_path), "y")


@over(["classes", "center of classes"])
def test_the_page_of_validated_classes(name: str, copied: Any, report_on: Any) -> None:
    """The column of probabilities is new, and classes have no mean."""
    folder = copied(name)
    path, validation = folder / "release.json", folder / "validation"
    validation.mkdir()
    members = [*json.loads(path.read_text()).items()]
    before = max(number for number, (member, _) in enumerate(members) if member in ("warnings", "choice"))
    members.insert(before + 1, ("validation", "inferred schema"))
    path.write_text(json.dumps(dict(members), indent=2) + "\n")
    release = dict(members)
    label, added = release["label"], ["grade_probabilities"] if name != "classes" else []
    common = f"common_stats {{ num_non_missing: {release['records']} tot_num_values: {release['records']} }}"
    text = f'features {{ path {{ step: "{label}" }} type: STRING string_stats {{ unique: 3 {common} }} }}'
    new = "".join(LABEL.replace('"y"', f'"{column}"') for column in added)
    for file, features in (("feature", AGE % 4), ("output", AGE % 4 + new + text)):
        message = parse_statistics(b"")
        text_format.Parse(f"datasets {{ num_examples: {release['records']} {features} }}", message)
        (validation / f"{file}_stats.pb").write_bytes(message.SerializeToString())
    (validation / "anomalies.pbtxt").write_text("")
    page = report_on(folder)
    (rows,) = (rows for caption, rows in page.tables.items() if caption.startswith("All features, and the released"))
    expected = [("age", "same"), *((column, "new") for column in added), (label, "private")]
    assert [(row[0], row[-1]) for row in rows[1:]] == expected
    assert "The features are unchanged." in page.text
    assert "The mean of the released labels" not in page.text
