"""Input files of a request: names with brackets, archives, and the index of pandas."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from labeldp.pipelines.errors import FieldError
from labeldp.pipelines.spec.fields import Fields
from labeldp.pipelines.spec.input_spec import input_spec, read_schema
from labeldp.transforms import InputError


def columns(path: Path, **fields: Any) -> list[str]:
    found = input_spec(Fields(input=str(path), input_format=fields.pop("format", "parquet"), label="y", **fields))
    return read_schema(found, ["y"]).names


def frame(path: Path, name: str | None) -> Path:
    pd.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}, index=pd.Index([3, 4], name=name)).to_parquet(path)
    return path


@pytest.mark.parametrize(("name", "column"), [(None, "__index_level_0__"), ("user", "user")])
def test_an_index_is_left_out_unless_a_field_names_it(tmp_path: Path, name: str | None, column: str) -> None:
    path = frame(tmp_path / "data[1].parquet", name)
    assert columns(path) == ["x", "y"]
    assert columns(path, id_column=column) == ["x", "y", column]


def test_an_index_with_the_name_of_the_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="is a pandas index with the name of the label"):
        columns(frame(tmp_path / "a.parquet", "y"), id_column="__index_level_0__")


def test_a_pattern_with_brackets_that_matches_nothing(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="stands for one of the characters"):
        columns(tmp_path / "data[1].parquet")


@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "tfrecord"])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.csv.gz"])
def test_an_archive_is_named(tmp_path: Path, format: str, name: str) -> None:
    path = tmp_path / name
    with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"), io.BytesIO())
    with pytest.raises(InputError, match=f"{name}: is a tar archive: unpack it"):
        columns(path, format=format)
