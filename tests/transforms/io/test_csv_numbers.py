"""Numbers of CSV: a text becomes one only if nothing of it is lost, as Python's decimals tell."""

import math
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, Limits
from labeldp.transforms.csv_input.csv_numbers import TOGETHER, read_numbers
from labeldp.transforms.io.csv_dialect import COMMA, Dialect
from labeldp.transforms.io.input_format import FilePart, file_parts
from labeldp.transforms.readers.file_reader import FileReader

MISSING = {"", "NA", "nan", "NULL", "#N/A", "-1.#IND"}
PLAIN = Format("csv")
EURO = Dialect(";", decimal=",", thousands=".")


def keeps(text: str, kind: pa.DataType) -> bool:
    """The rule of the guide to input files, for one text that is not missing."""
    text = text.strip(" \t")
    if kind != pa.float64():
        if not re.fullmatch(r"0|-?[1-9][0-9]*", text):
            return False
        low, high = (0, 2**64) if kind == pa.uint64() else (-(2**63), 2**63)
        return low <= int(text) < high
    if re.fullmatch(r"-?(inf|infinity|nan)", text, re.IGNORECASE):
        return True
    parts = re.fullmatch(r"-?((?:0|[1-9][0-9]*)?(\.[0-9]*)?)([eE][+-]?[0-9]+)?", text)
    if not parts or not re.search("[0-9]", parts[1]) or (parts[3] and not parts[2]):
        return False
    digits = re.sub(r"\.", "", parts[1]).strip("0")
    value = abs(float(text))
    if value == float("inf") or (digits and value < 2.0**-1022) or len(digits) > 17:
        return False
    return bool(parts[3]) or value < 2**53


def read(
    texts: list[str], kind: pa.DataType, dialect: Dialect = COMMA, rounded: bool = False, together: int = TOGETHER
) -> list[Any] | None:
    try:
        binary = pa.array([t.encode() for t in texts], pa.binary())
        return read_numbers(binary, kind, dialect, rounded, together).to_pylist()
    except pa.ArrowInvalid:
        return None


NUMBERS = st.one_of(
    st.from_regex(r"\A[+-]?[0-9]{0,22}(\.[0-9]{0,22})?([eE][+-]?[0-9]{1,3})?\Z"),
    st.floats().map(repr),
    st.floats(-1, 1).map(lambda value: f"{value:.18f}"),
    st.floats().map(lambda value: f"{value:.18e}"),
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([str(2**k + d) for k in (52, 53, 63, 64) for d in (-1, 0, 1)]),
    st.sampled_from(["00501", "-0", "0x1F", "10001e01", "1e5", " 7", "7 ", "1_0", "9" * 400, "0.1", ".5", "5.", "-.5"]),
    st.sampled_from(
        ["inf", "-Infinity", "NAN", "x", "-", ".", "1.5e400", "1.0e-400", "4.9e-324", "49.5000000000000000"]
    ),
    st.sampled_from(sorted(MISSING)),
)


@settings(deadline=None, max_examples=500)
@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from([pa.int64(), pa.uint64(), pa.float64()]))
@example(["", "0.5", "-7.25"], pa.float64())
@example(["5", "", "07"], pa.int64())
@example(["0." + "0" * 400 + "1"], pa.float64())
@example(["12345678901234567.0"], pa.float64())
@example(["123456789.123456789", "1.5"], pa.float64())
def test_texts_are_kept_or_refused(texts, kind):
    for together in (1, 2, 1 << 13):
        found = read(texts, kind, together=together)
        assert (found is not None) == all(text in MISSING or keeps(text, kind) for text in texts)
        if found is None:
            continue
        for text, number in zip(texts, found, strict=True):
            if text in MISSING:
                assert number is None
            elif kind == pa.float64():
                assert repr(number) == repr(float(text))
            else:
                assert number == int(text)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.decimals(-(10**12), 10**12, places=2), min_size=1, max_size=5), st.sampled_from([".", "'", " "]))
def test_marks_of_thousands(numbers, mark):
    def written(number: Decimal) -> str:
        return f"{number:,.2f}".replace(",", "_").replace(".", ",").replace("_", mark)

    texts = [written(number).encode() for number in numbers]
    dialect = Dialect(";", decimal=",", thousands=mark)
    found = read_numbers(pa.array(texts, pa.binary()), pa.float64(), dialect).to_pylist()
    assert found == [float(number) for number in numbers]


@pytest.mark.parametrize(
    "text", ["1.5", "1.23", "12.34,5", "0.123", "1234.567", "1.234.5", "1,5,5", "1,234.5", ",", "1.2345"]
)
@pytest.mark.parametrize("rounded", [False, True])
def test_marks_in_other_places_are_no_numbers(text, rounded):
    """The same text without marks would be another number: 1.5 is not 15."""
    assert read([text], pa.float64(), EURO, rounded) is None
    if "." in text:
        assert read([text], pa.float64(), Dialect(";", decimal=","), rounded) is None


# Files.


def csv_files(folder: Path, *texts: str) -> list[FilePart]:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text, newline="")
    return file_parts(sorted(map(str, folder.glob("*.csv"))), Format("csv"))


SHORT_SAMPLE = replace(PLAIN, limits=Limits(sample_rows=100))


def records(parts: list[FilePart], format: Format = PLAIN) -> dict[str, list[Any]]:
    reader = FileReader(format, label_column="y")
    return pa.Table.from_batches([batch.batch for part in parts for batch in reader.read(part)]).to_pydict()


@pytest.mark.parametrize(
    ("first", "later", "advice"),
    [
        ("7", "00501", "v=string to keep the text, or v=float64 for the nearest number"),
        ("7", "-0", "v=float64, or v=string"),
        ("7", "12345678901234567890", "v=uint64, or v=string"),
        ("7", "123456789012345678901", "v=string to keep the text"),
        ("7", "1.5", "v=float64, or v=string"),
        ("7", "10001e01", "v=string"),
        ("1.5", "00501", "v=string"),
        ("1.5", "12345678901234567890", "v=uint64, or v=string"),
        ("1.5", "1234567890123456.78", "v=string"),
        ("1.5", "Total", "v=string"),
        ("true", "1", "v=string"),
        ("2024-01-31", "2024-01-31T10:00Z", "v=string"),
        ("2024-01-31T10:00Z", "2024-01-31T10:00:00", "v=string"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00.123456", "v=string"),
        ("2024-01-31 10:00:00.5", "9999-12-31 00:00:00", "v=string"),
    ],
)
@pytest.mark.parametrize(("newline", "quoted"), [("\n", False), ("\r\n", True)])
def test_a_later_value_that_is_not_kept_is_named(tmp_path, first, later, advice, newline, quoted):
    cells = [first] * 2_000 + [later] + [first] * 100
    rows = [f'"{cell}",1' if quoted else f"{cell},1" for cell in cells]
    parts = csv_files(tmp_path, newline.join(["v,y", *rows, ""]))
    with pytest.raises(InputError) as caught:
        records(parts, SHORT_SAMPLE)
    assert "column 'v' on line 2002 is " in str(caught.value)
    assert f"give `csv_types` {advice}" in str(caught.value)
    assert len(later) < 4 or later not in str(caught.value)
    found = records(parts, Format("csv", {"v": "string"}))
    assert found["v"] == cells


def test_a_file_of_a_header_alone_is_no_first_file(tmp_path):
    parts = csv_files(tmp_path, "v,k,y\n", "v,k,y\r\n\r\n", "\ufeffv,k,y\n1.5,a,2\n", "v,k,y\n", "v,k,y\n2,b,3\n")
    assert records(parts) == {"v": [1.5, 2.0], "k": ["a", "b"], "y": [2.0, 3.0]}
    assert {part.first for part in parts} == {str(tmp_path / "2.csv")}


def test_a_column_without_a_value_takes_its_type_from_the_next_files(tmp_path):
    parts = csv_files(tmp_path, "v,w,y\n,,2\n", "v,w,y\n,,2\n", "v,w,y\n1.5,,2\n")
    found = records(parts)
    assert found["v"] == [None, None, 1.5]
    assert found["w"] == [""] * 3


def test_nulls_in_the_first_rows_then_numbers(tmp_path):
    parts = csv_files(tmp_path, "v,y\n" + ",1\n" * 200 + "00501,1\n0.5,1\n")
    assert records(parts, SHORT_SAMPLE)["v"] == [""] * 200 + ["00501", "0.5"]
    with pytest.raises(InputError, match="column 'v' on line 202 is a number that int64 does not keep"):
        records(parts, replace(SHORT_SAMPLE, csv_types={"v": "int64"}))
    assert records(parts, replace(SHORT_SAMPLE, csv_types={"v": "float64"}))["v"] == [None] * 200 + [501.0, 0.5]


def test_declared_types(tmp_path):
    parts = csv_files(tmp_path, f"v,y\n{2**64 - 1},1\n7,2\n")
    assert records(parts)["v"] == [str(2**64 - 1), "7"]
    assert records(parts, Format("csv", {"v": "uint64"}))["v"] == [2**64 - 1, 7]
    assert records(parts, Format("csv", {"v": "float64"}))["v"] == [2.0**64, 7.0]
    with pytest.raises(InputError, match="give `csv_types` v=uint64"):
        records(parts, Format("csv", {"v": "int64"}))


@pytest.mark.parametrize("dialect", [COMMA, Dialect(decimal=",")], ids=["plain", "marked"])
def test_white_space_is_a_missing_number(tmp_path, dialect):
    """As it is a missing class."""
    parts = csv_files(tmp_path, "v,w,y\n1,2,7\n ,\t , \n\t,3, \t\n4, NA ,\tnan\n")
    reader = FileReader(Format("csv", {"v": "float64", "w": "int64"}, dialect=dialect), label_column="y")
    (batch,) = (each.batch.to_pydict() for each in reader.read(parts[0]))
    labels = [None if label is None or math.isnan(label) else label for label in batch.pop("y")]
    assert (labels, batch) == ([7.0, None, None, None], {"v": [1.0, None, None, 4.0], "w": [2, None, 3, None]})


def test_truth_values_zeros_and_missing_texts(tmp_path):
    parts = csv_files(tmp_path, "a,b,c,d,e,y\ntrue,true,0,NA,NA,1\nFALSE,1,1,x,5,2\n")
    assert records(parts) == {
        "a": [True, False], "b": ["true", "1"], "c": [0, 1], "d": ["NA", "x"], "e": [None, 5], "y": [1.0, 2.0],
    }  # fmt: skip


def test_files_without_a_header(tmp_path):
    parts = csv_files(tmp_path, "1,a,2\n3,b,4\n", "\ufeff5,c,6\r\n")
    format = Format("csv", dialect=Dialect(columns=("f", "t", "y")))
    assert records(parts, format) == {"f": [1, 3, 5], "t": ["a", "b", "c"], "y": [2.0, 4.0, 6.0]}
    bad = csv_files(tmp_path, "1,a,2\n3,b\n", "\ufeff5,c,6\r\n")
    with pytest.raises(InputError, match=r"line 2 has 2 fields, where `csv_dialect` columns names 3"):
        records(bad, format)
    bad = csv_files(tmp_path, "f,t,y\n3,b,1\n", "5,c,6\n")
    with pytest.raises(
        InputError,
        match=r"text on line 1, not a number.*; if line 1 is a header line, leave columns out of `csv_dialect`",
    ):
        records(bad, format)


def notes(parts: list[FilePart], dialect: Dialect = COMMA) -> tuple[str, ...]:
    return FileReader(Format("csv", dialect=dialect), label_column="y").notes(parts[0])


def test_notes_on_numbers_that_are_text(tmp_path):
    rows = "".join(f"{i},k{i},{i / 7:.20f},{i:05},{i % 5}\n" for i in range(1, 300))
    parts = csv_files(tmp_path, "v,k,d,z,y\n", f"v,k,d,z,y\n{rows}Total,,,,600\n")
    total, digits = notes(parts)
    assert total == (
        f"column 'v' is text because of line 301 of {tmp_path / '1.csv'}, which holds no plain number there: if that "
        "is a footer, remove it; `csv_types` v=float64 reads numbers alone"
    )
    assert digits.startswith("column 'd' is text: some of its numbers have more digits")
    with pytest.raises(InputError, match="column 'v' on line 301 is not a float64"):
        records(parts, Format("csv", {"v": "float64"}))


def test_no_note_depends_on_a_label(tmp_path):
    parts = csv_files(tmp_path, "v,y\n1,00501\n2,6,75\n", "v,y\n1,5\n")
    assert notes(parts) == ()


def test_notes_on_marks(tmp_path):
    parts = csv_files(tmp_path, "a;b;c;d;y\n" + "6,75;1.234,50;1,234;a,b;1,5\n" * 20)
    assert notes(parts, Dialect(";")) == (
        "text that looks like numbers, in column 'a': to read it as numbers, give `csv_dialect` decimal=,",
        "text that looks like numbers, in column 'b': to read it as numbers, give `csv_dialect` decimal=, thousands=.",
        "text that looks like numbers, in column 'c': to read it as numbers, give `csv_dialect` decimal=, or "
        "`csv_dialect` thousands=,",
    )
    assert notes(parts, Dialect(";", decimal=",")) == (
        "text that looks like numbers, in column 'b': to read it as numbers, give `csv_dialect` thousands=.",
    )
    assert notes(parts, EURO) == ()
    assert records(parts, Format("csv", dialect=EURO))["b"] == [1234.5] * 20


FORMATS = {
    "utf-16": ("v,y\n1,2\n".encode("utf-16"), "byte order mark of utf-16: give `csv_dialect` encoding=utf-16"),
    "utf-32": ("v,y\n1,2\n".encode("utf-32"), "byte order mark of utf-32: give `csv_dialect` encoding=utf-32"),
    "utf-16-le": ("v,y\n1,2\n".encode("utf-16-le"), "the header line has zero bytes, as UTF-16"),
    "parquet": (b"PAR1\x15\x04\x15\0\0PAR1", "is a Parquet file: give `input_format` parquet"),
    "xlsx": (b"PK\x03\x04\x14\0v,y\n", "is a ZIP archive, such as an Excel workbook"),
}


@pytest.mark.parametrize(("content", "said"), FORMATS.values(), ids=list(FORMATS))
def test_files_of_other_formats_are_named(tmp_path, content, said):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(said)):
        records(file_parts([str(tmp_path / "a.csv")], Format("csv")))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"decimal": ";"}, "csv_dialect decimal"), ({"decimal": ""}, "csv_dialect decimal"),
        ({"thousands": "."}, "csv_dialect thousands"),
        ({"thousands": "x"}, "csv_dialect thousands"), ({"thousands": ".."}, "csv_dialect thousands"),
        ({"columns": ("a", "")}, "csv_dialect columns"), ({"columns": ("a", "a")}, "csv_dialect columns"),
        ({"columns": ("a\n", "b")}, "csv_dialect columns"),
    ],
)  # fmt: skip
def test_options_that_are_none(options, flag):
    with pytest.raises(ValueError, match=f"^{flag} must be"):
        Dialect(**options)
