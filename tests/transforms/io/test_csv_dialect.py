"""CSV in other dialects: delimiters and encodings, compared with Python's csv module."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, Limits
from labeldp.transforms.io.csv_dialect import Dialect
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers.file_reader import FileReader

SENTINEL = "4861371529"
DELIMITERS = [",", ";", "\t", "|", " ", ":"]
ENCODINGS = ["utf-8", "latin-1", "cp1252", "utf-16", "utf-16-be", "utf-32", "shift_jis", "cp1140"]


def dialect_format(delimiter: str = ",", encoding: str = "utf-8", **types: str) -> Format:
    return Format("csv", types or None, dialect=Dialect(delimiter, encoding, newlines=True))


def read(path: Path, format: Format, label: str | None = "y") -> list[dict[str, Any]]:
    batches = FileReader(format, label_column=label).read(FilePart(str(path), str(path)))
    return [record for batch in batches for record in batch.batch.to_pylist()]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_dialect_is_read_as_python_reads_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    delimiter, encoding = data.draw(st.sampled_from(DELIMITERS)), data.draw(st.sampled_from(ENCODINGS))
    letters = "ab1,;\t| :\"\n'" + ("é" if encoding not in ("shift_jis",) else "ア")
    texts = data.draw(st.lists(st.text(letters, min_size=1, max_size=5), min_size=1, max_size=12))
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\n")
    writer.writerows([["f", "t", "y"], *([number, text, number % 7] for number, text in enumerate(texts))])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(buffer.getvalue().encode(encoding))
    format = replace(
        dialect_format(delimiter, encoding, t="string"), limits=Limits(block_bytes=data.draw(st.integers(1, 40)))
    )
    records = read(path, format)
    assert [(record["f"], record["t"], record["y"]) for record in records] == [
        (number, text, number % 7) for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252", "shift_jis", "utf-16-le"])
def test_invalid_bytes_are_named_by_line_and_column(tmp_path, encoding):
    bad = b"\x00\xd8\x00\x00" if encoding == "utf-16-le" else b"\x81\xff"
    text = "f,t,y\n1,a,2\n2,@,3\n3,c," + SENTINEL
    path = tmp_path / "a.csv"
    path.write_bytes(bad.join(part.encode(encoding) for part in text.split("@")))
    with pytest.raises(InputError) as caught:
        read(path, dialect_format(encoding=encoding))
    assert f"a.csv: column 't' on line 3 is not text in {Dialect(encoding=encoding).encoding}" in str(caught.value)
    assert "give `csv_dialect` encoding=NAME" in str(caught.value)
    assert SENTINEL not in str(caught.value)


def test_invalid_bytes_in_a_label_are_not_shown(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"f,y\n1,2\n2,\xff" + SENTINEL.encode() + b"\n")
    with pytest.raises(InputError, match=r"label column 'y' holds text on line 3, not a number") as caught:
        read(path, Format("csv"))
    assert SENTINEL not in str(caught.value)


def test_latin_1_was_binary(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("f,name,y\n1,José,2\n".encode("latin-1"))
    with pytest.raises(
        InputError, match="column 'name' on line 2 is not text in utf-8: give `csv_dialect` encoding=NAME"
    ):
        read(path, Format("csv"))
    assert read(path, dialect_format(encoding="latin-1")) == [{"f": 1, "name": "José", "y": 2.0}]


def test_a_header_that_is_not_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"f,\xff,y\n1,a,2\n")
    with pytest.raises(InputError, match="the header line is not text in utf-8: give `csv_dialect` encoding=NAME"):
        read(path, Format("csv"))


@pytest.mark.parametrize(("mark", "shown"), [(";", ";"), ("\t", r"\\t"), ("|", r"\|")])
def test_another_delimiter_is_recognized(tmp_path, mark, shown):
    path = tmp_path / "a.csv"
    path.write_text(f"f{mark}y\n1{mark}{SENTINEL}\n")
    with pytest.raises(InputError, match=f"no column 'y' in the header line, .*use `csv_dialect` delimiter='{shown}'"):
        read(path, Format("csv"))


def test_a_first_record_in_place_of_a_header_is_not_shown(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"1;{SENTINEL}\n2;3\n")
    with pytest.raises(
        InputError, match="which has only one, because it has no ',': `csv_dialect` delimiter= names"
    ) as caught:
        read(path, Format("csv"))
    assert SENTINEL not in str(caught.value)


@pytest.mark.parametrize("delimiter", ["", ",,", "a", "1", '"', "\n", "é", ".", "-", "\0", "\\"])
def test_no_delimiters(delimiter):
    with pytest.raises(ValueError, match="csv_dialect delimiter must be one character"):
        Dialect(delimiter)


@pytest.mark.parametrize("encoding", ["", "nope", "hex", "rot13", "zlib", "idna", "unicode_escape", "utf-7", "a\0b"])
def test_no_encodings(encoding):
    with pytest.raises(ValueError, match="csv_dialect encoding must be a text encoding"):
        Dialect(encoding=encoding)
