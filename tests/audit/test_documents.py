"""Reading of untrusted documents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit import documents
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.pipelines.cli.commands import main

from tests.audit.mechanism_files import changed, write

RESPONSE: dict[str, Any] = json.loads(Path(__file__).with_name("response.json").read_text())


TEXT = json.dumps(RESPONSE)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not valid JSON"),
        (TEXT.encode()[:-1], "is not valid JSON"),
        (TEXT.encode() + b"}", "is not valid JSON"),
        (b"\xff" + TEXT.encode(), "is not valid JSON"),
        (b"\xef\xbb\xbf" + TEXT.encode(), "is not valid JSON"),
        (TEXT.encode("utf-16"), "is not valid JSON"),
        (b"\0" * 1000, "is not valid JSON"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a":' * 200_000, "is nested too deeply"),
        (b"[]", "is not a JSON object"),
        (b"1", "is not a JSON object"),
        (b"{}", "is not a mechanism file"),
        (b'{"format": ["labeldp-mechanism-1"]}', "is not a mechanism file"),
        (TEXT.replace('"bits": 8', '"bits": 8, "bits": 8').encode(), "a key appears twice"),
        (TEXT.replace('"row_sum"', '"epsilon": 9.0, "row_sum"').encode(), "a key appears twice"),
        (TEXT.replace(": {}", ': {"a": {"b": 1, "b": 2}}').encode(), "a key appears twice"),
        (TEXT.replace('"parameters": {}', '"parameters": {"a": NaN}').encode(), "NaN is not a number"),
        (TEXT.replace("0.7,", "Infinity,").encode(), "Infinity is not a number"),
        (TEXT.replace("0.7,", "1e999,").encode(), "epsilon is not a number from 0"),
        (TEXT.replace('"bits": 8', '"bits": ' + "8" * 100_000).encode(), "is not valid JSON"),
        (TEXT.replace('["64", 2]', '["64", 999999999999999999999]').encode(), "do not cover 3 labels"),
        (TEXT.replace('"rr"', '"rr\\nPASS"').encode(), "mechanism.mechanism is not a text of the form"),
        (TEXT.replace('"rr"', '"\\ud800"').encode(), "mechanism.mechanism is not a text of the form"),
    ],
)
def test_malformed_files_fail_in_one_line(tmp_path, capsys, content, problem):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert main(["audit", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.startswith("FAIL: ")
    assert out.count("\n") == 1
    assert problem in out


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert audit_path(str(tmp_path / "pipe")).problems == ("'pipe' is not a regular file",)


def test_a_file_that_is_too_large_is_not_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 10)
    assert audit_path(write(tmp_path / "m.json", RESPONSE)).problems == ("'m.json' has more than 10 bytes",)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 255))
def test_a_changed_byte_never_crashes_and_rarely_passes(tmp_path_factory, place, byte):
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    content = bytearray(TEXT.encode())
    content[place] = byte
    path.write_bytes(content)
    audit = audit_path(str(path))
    assert audit_report(audit).splitlines()[-1].startswith("FAIL: " if audit.problems else "PASS")
    if not audit.problems:
        free = [("mechanism",), ("parameters",), ("epsilon",), ("certificate", "epsilon")]
        mutated, original = json.loads(content), RESPONSE
        for where in [*free, ("certificate", "max_bias")]:
            mutated, original = changed(mutated, where, None), changed(original, where, None)
        assert mutated == original


def read(function: Any, value: Any) -> Any:
    try:
        return function(value, "a weight")
    except documents.RefusedDocument as refused:
        return str(refused)


TEXTS = st.one_of(
    st.integers(0, 10**21).map(str),
    st.text("0123456789", max_size=22),
    st.sampled_from(
        ["", "0", "00", "01", "-1", "+1", "1_0", " 1", "1\n", "\u0661", "\u00b2", "1.0", 1, 1.0, True, None, ["1"]]
    ),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, max_size=4))
def test_many_decimals_are_read_like_each_alone(texts):
    alone = [read(documents.read_decimal, text) for text in texts]
    refused = [each for each in alone if isinstance(each, str)]
    assert read(documents.read_decimals, texts) == (refused[0] if refused else alone)
