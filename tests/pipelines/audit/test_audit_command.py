"""The audit of mechanism files and releases."""

import ast
import copy
import hashlib
import inspect
import json
import math
import os
import random
import sys
import time
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.audit import documents
from labeldp.pipelines.audit.audit_command import audit_report, run
from labeldp.pipelines.audit.audit_mechanism import Audit, audit_mechanism
from labeldp.pipelines.audit.audit_release import audit_path
from labeldp.pipelines.audit.exact_log import ln_at_most, ln_bounds

# Randomized response over 3 labels with epsilon ln 2, computed by hand: true label 128/256, others 64/256.
RESPONSE: dict[str, Any] = {
    "format": "labeldp-mechanism-1",
    "mechanism": "rr",
    "parameters": {},
    "epsilon": 0.7,
    "bits": 8,
    "labels": [0.0, 1.0, 2.0],
    "outputs": [0.0, 1.0, 2.0],
    "columns": [
        [["128", 1], ["64", 2]],
        [["64", 1], ["128", 1], ["64", 1]],
        [["64", 2], ["128", 1]],
    ],
    "certificate": {
        "epsilon": 0.6931471805599454,  # math.log(2) is 0.6931471805599453, slightly below ln 2
        "ratio": ["2", "1"],
        "bias": [0.75, 0.0, -0.75],
        "max_bias": 0.75,
        "row_sum": "256",
    },
    "fingerprint": "1c9f",  # filled in below
}
RELEASE: dict[str, Any] = {
    "format": "labeldp-release-1",
    "epsilon": 1.0,
    "prior_epsilon": 0.25,
    "randomizer_epsilon": 0.75,
    "certified_epsilon": 0.95,
    "mechanism_fingerprint": "",
}


def fingerprint_of(document):
    signed = {key: document[key] for key in ("bits", "columns", "labels", "outputs")}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


RESPONSE["fingerprint"] = RELEASE["mechanism_fingerprint"] = fingerprint_of(RESPONSE)


def at(document: Any, path: tuple) -> Any:
    """The value at path, a tuple of keys and indices."""
    for key in path:
        document = document[key]
    return document


def changed(document, path, value):
    """A copy with the value at path replaced; ... removes it."""
    document = copy.deepcopy(document)
    place = at(document, path[:-1])
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def resigned(document):
    """A copy with the fingerprint recomputed, so that another check must find the error."""
    return changed(document, ("fingerprint",), fingerprint_of(document))


def run_lengths(values):
    runs = []
    for value in map(str, values):
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def mechanism_of(rows, labels, outputs, bits):
    """A valid file for a matrix of positive weights, computed directly in exact arithmetic."""
    ratio = max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
    exact = [Fraction(output) for output in outputs]
    bias = [
        sum(weight * output for weight, output in zip(row, exact, strict=True)) / 2**bits - Fraction(label)
        for label, row in zip(labels, rows, strict=True)
    ]
    most = max(map(abs, bias))
    epsilon = math.log(ratio) * (1 + 1e-12) + 1e-15 if ratio > 1 else 0.0
    document = {
        "format": "labeldp-mechanism-1",
        "mechanism": "test",
        "parameters": {"of": "no concern"},
        "epsilon": epsilon,
        "bits": bits,
        "labels": labels,
        "outputs": outputs,
        "columns": [run_lengths(column) for column in zip(*rows, strict=True)],
        "certificate": {
            "epsilon": epsilon,
            "ratio": [str(ratio.numerator), str(ratio.denominator)],
            "bias": [float(value) for value in bias],
            "max_bias": math.nextafter(float(most), math.inf),
            "row_sum": str(2**bits),
        },
    }
    return {**document, "fingerprint": fingerprint_of(document)}


def random_row(rng, outputs, bits):
    cuts = [0, *sorted(rng.sample(range(1, 2**bits), outputs - 1)), 2**bits]
    return [right - left for left, right in pairwise(cuts)]


def write(path, document):
    path.write_text(json.dumps(document))
    return str(path)


def test_randomized_response_holds():
    audit = audit_mechanism(RESPONSE)
    assert audit == Audit(
        problems=(),
        mechanism="rr",
        labels=3,
        outputs=3,
        bits=8,
        requested_epsilon=0.7,
        certified_epsilon=0.6931471805599454,
        epsilon=0.6931471805599454,
        ratio=Fraction(2),
        max_bias=0.75,
        fingerprint=RESPONSE["fingerprint"],
    )
    assert audit_report(audit).splitlines()[-1] == "PASS"


def test_the_fingerprint_is_pinned():
    text = (
        '{"bits":8,"columns":[[["128",1],["64",2]],[["64",1],["128",1],["64",1]],[["64",2],["128",1]]],'
        '"labels":[0.0,1.0,2.0],"outputs":[0.0,1.0,2.0]}'
    )
    assert audit_mechanism(RESPONSE).fingerprint == hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def test_extra_keys_are_ignored():
    document = {**RESPONSE, "note": ["any", {"thing": None}]}
    document["certificate"] = {**RESPONSE["certificate"], "note": 1}
    assert not audit_mechanism(document).problems


def leaves(value, path=()):
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path


def paths(value, path=()):
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(child, (*path, key))


def name_of(path):
    return ".".join(map(str, path))


# Values that no other value in the file determines: the name, the parameters, and an upper bound.
FREE = {("mechanism",), ("parameters",), ("epsilon",)}


@pytest.mark.parametrize("path", [path for path in leaves(RESPONSE) if path not in FREE], ids=name_of)
def test_a_small_change_of_any_value_is_found(path):
    value = at(RESPONSE, path)
    if isinstance(value, float):
        others = [math.nextafter(value, -math.inf), value + 1]
    elif isinstance(value, int):
        others = [value - 1, value + 1]
    elif value.isdigit() and len(value) < 20:
        others = [str(int(value) - 1), str(int(value) + 1)]
    else:
        others = [value[:-1] + ("0" if value[-1] != "0" else "2"), value.upper() + " ", ""]
    for other in others:
        assert audit_mechanism(changed(RESPONSE, path, other)).problems, other


@pytest.mark.parametrize("path", list(paths(RESPONSE)), ids=name_of)
def test_every_member_is_needed_and_typed(path):
    assert audit_mechanism(changed(RESPONSE, path, ...)).problems
    numbers = [-1, 10**400, -1.5, math.nan, math.inf]
    for value in [None, True, False, *numbers, "", "x y", "\n", [], [[]], [None], {"": 0}]:
        if not (path == ("parameters",) and isinstance(value, dict)):
            assert audit_mechanism(changed(RESPONSE, path, value)).problems, value


@pytest.mark.parametrize("path", [path for path in paths(RESPONSE) if isinstance(path[-1], int)], ids=name_of)
def test_every_list_has_its_length(path):
    document = copy.deepcopy(RESPONSE)
    at(document, path[:-1]).insert(path[-1], copy.deepcopy(at(document, path)))
    assert audit_mechanism(document).problems


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("epsilon",), 0.6931471805599453, "certificate.epsilon is above the epsilon requested"),
        (("certificate", "epsilon"), math.log(2), "certificate.epsilon is below the true epsilon"),
        (("certificate", "epsilon"), 0.0, "certificate.epsilon is below the true epsilon"),
        (("certificate", "ratio"), ["3", "2"], "certificate.ratio is not the largest ratio of the weights"),
        (("certificate", "row_sum"), "255", "certificate.row_sum is not 2^bits"),
        (("certificate", "bias", 1), 5e-324, "certificate.bias is wrong for 1 of 3 labels, first"),
        (("certificate", "max_bias"), 0.7499999999999999, "certificate.max_bias is not the largest"),
        (("certificate", "max_bias"), 0.750000001, "certificate.max_bias is not the largest"),
        (("columns", 1, 1), ["127", 1], "the weights of 1 of 3 labels do not sum to 2^bits, first label number 1"),
        (("columns", 2), [["0", 2], ["256", 1]], "epsilon is infinite: only some labels can give 1 of 3 outputs"),
        (("columns", 0), [["0", 3]], "probability zero for every label: 1 of 3 outputs, first output number 0"),
        (("labels", 2), 2.5, "certificate.bias is wrong for 1 of 3 labels, first label number 2"),
        (("outputs", 2), 2.5, "certificate.bias is wrong for 3 of 3 labels, first label number 0"),
        (("labels",), [0.0, 2.0, 1.0], "labels is not strictly ascending"),
        (("outputs",), [0.0, 1.0, 1.0], "outputs is not strictly ascending"),
        (("labels",), [0, 1, 2], "labels is not a non-empty array of finite floats"),
        (("bits",), 64, "bits is not between 1 and 63"),
        (("bits",), 0, "bits is not between 1 and 63"),
        (("bits",), 8.0, "bits is not an integer"),
        (("certificate", "ratio"), ["2", "0"], "certificate.ratio is not a numerator and a denominator > 0"),
        (("columns", 0), [["128", 1], ["64", 10**30]], "the runs of column 0 do not cover 3 labels"),
        (("columns", 0), [["128", 3], ["64", 0]], "a run of column 0 is not a weight and a length >= 1"),
        (("columns", 0), [["128", True], ["64", 2]], "a run of column 0 is not a weight and a length >= 1"),
        (("columns", 0), [[128, 1], ["64", 2]], "a weight of column 0 is not a string of 1 to 20"),
    ],
)
def test_each_check_stands_alone(path, value, problem):
    found = audit_mechanism(resigned(changed(RESPONSE, path, value))).problems
    assert any(line.startswith(problem) for line in found), found


def test_a_sound_change_leaves_only_the_fingerprint_wrong():
    document = changed(RESPONSE, ("columns", 0), [["128", 1], ["64", 1], ["64", 1]])
    assert audit_mechanism(document).problems == ("fingerprint is not that of the bits, columns, labels and outputs",)
    assert not audit_mechanism(resigned(document)).problems


@pytest.mark.parametrize(
    "text",
    [" 64", "64 ", "64\n", "+64", "-64", "6_4", "064", "0x40", "64.0", "6e1", "", "\uff16\uff14", "9" * 5000],
)
@pytest.mark.parametrize(
    "path", [("columns", 0, 1, 0), ("certificate", "ratio", 1), ("certificate", "row_sum")], ids=name_of
)
def test_only_plain_decimals_are_read(path, text):
    problems = audit_mechanism(resigned(changed(RESPONSE, path, text))).problems
    assert len(problems) == 1
    assert problems[0].endswith("is not a string of 1 to 20 decimal digits")


def test_an_unreduced_ratio_is_the_same_fraction():
    assert not audit_mechanism(changed(RESPONSE, ("certificate", "ratio"), ["128", "64"])).problems


def test_whole_numbers_do_for_epsilons():
    assert not audit_mechanism(changed(RESPONSE, ("epsilon",), 1)).problems
    assert audit_mechanism(changed(RESPONSE, ("epsilon",), 2**53 + 1)).problems == (
        "epsilon is not a finite float >= 0",
    )


def test_no_ratio_is_claimed_for_rows_that_are_not_distributions():
    audit = audit_mechanism(changed(RESPONSE, ("columns", 0, 0, 0), "100"))
    assert audit.ratio is None
    assert audit.epsilon == math.inf
    assert "unbounded" in audit_report(audit)


def test_epsilon_zero():
    document = mechanism_of([[3, 5], [3, 5]], [-1.5, 2.0], [-2.0, 7.25], 3)
    assert document["certificate"]["epsilon"] == 0.0
    audit = audit_mechanism(document)
    assert not audit.problems
    assert audit.epsilon == 0.0
    assert audit.ratio == 1


def test_one_label_and_one_output():
    assert not audit_mechanism(mechanism_of([[2]], [0.1], [0.1], 1)).problems


def test_extreme_floats():
    rows = [[2**62 + 1, 2**62 - 1], [2**62 - 1, 2**62 + 1]]
    tiny, huge = 5e-324, sys.float_info.max
    assert not audit_mechanism(mechanism_of(rows, [tiny, 2 * tiny], [tiny, huge], 63)).problems
    audit = audit_mechanism(mechanism_of(rows, [tiny, 2 * tiny], [-tiny, tiny], 63))
    assert not audit.problems
    assert audit.max_bias == 2 * tiny
    overflow = changed(RESPONSE, ("labels",), [-huge, 0.0, 1.0])
    overflow["outputs"] = [1.0, 2.0, huge]
    overflow["columns"] = overflow["columns"][::-1]  # for the label -huge, most weight is on the output huge
    assert audit_mechanism(resigned(overflow)).problems == ("a bias is too large for a float",)


@st.composite
def mechanisms(draw):
    k, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    bits = draw(st.integers(3, 63))
    floats = st.floats(-1e6, 1e6)
    labels = sorted(draw(st.sets(floats, min_size=k, max_size=k)))
    outputs = sorted(draw(st.sets(floats, min_size=m, max_size=m)))
    cuts = st.sets(st.integers(1, 2**bits - 1), min_size=m - 1, max_size=m - 1)
    rows = []
    for _ in range(k):
        edges = [0, *sorted(draw(cuts)), 2**bits]
        rows.append([right - left for left, right in pairwise(edges)])
    return rows, labels, outputs, bits


@settings(max_examples=100, deadline=None)
@given(mechanisms())
def test_random_mechanisms(parts):
    rows, *_ = parts
    document = mechanism_of(*parts)
    audit = audit_mechanism(json.loads(json.dumps(document)))
    assert audit.problems == ()
    ratio = max(Fraction(a[c], b[c]) for a in rows for b in rows for c in range(len(a)))
    assert audit.ratio == ratio
    assert audit.epsilon == pytest.approx(math.log(ratio), rel=1e-12, abs=1e-15)
    assert audit.max_bias <= document["certificate"]["max_bias"] <= math.nextafter(audit.max_bias, math.inf)
    assert ln_at_most(ratio, Fraction(audit.epsilon))
    if audit.epsilon:
        least = {**document["certificate"], "epsilon": audit.epsilon}
        assert not audit_mechanism({**document, "epsilon": audit.epsilon, "certificate": least}).problems
        least["epsilon"] = math.nextafter(audit.epsilon, 0)
        assert audit_mechanism({**document, "certificate": least}).problems == (
            "certificate.epsilon is below the true epsilon",
        )


@settings(max_examples=60, deadline=None)
@given(mechanisms(), st.data())
def test_moving_weight_is_found(parts, data):
    rows, _, outputs, _ = parts
    document = mechanism_of(*parts)
    row, output = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, len(outputs) - 1))
    moved = copy.deepcopy(rows)
    moved[row][output] += 1
    document["columns"] = [run_lengths(column) for column in zip(*moved, strict=True)]
    problem = f"the weights of 1 of {len(rows)} labels do not sum to 2^bits, first label number {row}"
    assert problem in audit_mechanism(resigned(document)).problems
    moved[row][output - 1] -= 1  # the row has the right sum again
    document["columns"] = [run_lengths(column) for column in zip(*moved, strict=True)]
    if moved != rows:
        assert audit_mechanism(document).problems


positive = st.builds(Fraction, st.integers(1, 2**70), st.integers(1, 2**64))
near_one = st.builds(lambda n, step: Fraction(n + step, n), st.integers(8, 2**64), st.integers(-3, 3))


@settings(max_examples=100, deadline=None)
@given(positive | near_one, st.integers(1, 24))
def test_ln_bounds_hold_and_close(x, terms):
    lower, upper = ln_bounds(x, terms)
    inner_lower, inner_upper = ln_bounds(x, terms + 10)
    assert lower <= inner_lower <= inner_upper <= upper
    assert upper - lower <= Fraction(200, 9**terms)
    with localcontext() as context:
        context.prec = 80
        exact = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).ln())
    assert lower - Fraction(1, 10**70) <= exact <= upper + Fraction(1, 10**70)
    assert (lower == upper) == (x == 1)


@settings(max_examples=60, deadline=None)
@given(positive | near_one, st.integers(-3, 3))
def test_ln_at_most_next_to_the_border(x, steps):
    with localcontext() as context:
        context.prec = 120
        exact = (Decimal(x.numerator) / Decimal(x.denominator)).ln()
        bound = float(exact)
        for _ in range(abs(steps)):
            bound = math.nextafter(bound, math.copysign(math.inf, steps))
        assert ln_at_most(x, Fraction(bound)) == (exact <= Decimal(bound))
        # A bound that agrees with ln(x) to 100 digits needs a higher precision.
        for offset in (Decimal("1e-100"), Decimal("-1e-100")):
            assert ln_at_most(x, Fraction(exact + offset)) == (offset > 0)


def test_ln_of_one_and_of_no_number():
    assert ln_bounds(Fraction(1), 1) == (0, 0)
    assert ln_at_most(Fraction(1), Fraction(0))
    assert not ln_at_most(Fraction(1), Fraction(-1, 10**400))
    for x in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="ln needs a number > 0"):
            ln_bounds(x, 3)


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
        (TEXT.replace("0.7,", "1e999,").encode(), "epsilon is not a finite float"),
        (TEXT.replace('"bits": 8', '"bits": ' + "8" * 100_000).encode(), "is not valid JSON"),
        (TEXT.replace('["64", 2]', '["64", 999999999999999999999]').encode(), "do not cover 3 labels"),
        (TEXT.replace('"rr"', '"rr\\nPASS"').encode(), "mechanism is not a name"),
        (TEXT.replace('"rr"', '"\\ud800"').encode(), "mechanism is not a name"),
    ],
)
def test_malformed_files_fail_in_one_line(tmp_path, capsys, content, problem):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert run([str(path)]) == 1
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.startswith("FAIL: ")
    assert out.count("\n") == 1
    assert problem in out


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert audit_path(str(tmp_path / "pipe")).problems == ("'pipe' is not a regular file",)


def test_a_file_that_is_too_large_is_not_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_MAX_FILE_BYTES", 10)
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


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "mechanism.json", RESPONSE)
    write(tmp_path / "release.json", RELEASE)
    return tmp_path


def test_a_release_is_audited_by_folder_or_by_manifest(folder):
    by_folder = audit_path(str(folder))
    assert by_folder == audit_path(str(folder / "release.json"))
    assert by_folder.problems == ()
    assert (by_folder.total_epsilon, by_folder.prior_epsilon) == (1.0, 0.25)
    assert "total epsilon 1.0, including 0.25 for the prior" in audit_report(by_folder)
    assert audit_path(str(folder / "mechanism.json")).total_epsilon is None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("format", "labeldp-release-2", "release.json is not a release manifest"),
        ("epsilon", 0.94, "release.certified_epsilon is above release.epsilon"),
        ("epsilon", 0.9999999999999999, "release.prior_epsilon + release.randomizer_epsilon is above"),
        ("prior_epsilon", 0.26, "release.certified_epsilon is below release.prior_epsilon"),
        ("prior_epsilon", 0.3, "release.prior_epsilon + release.randomizer_epsilon is above"),
        ("prior_epsilon", -0.1, "release.prior_epsilon is not a finite float >= 0"),
        ("randomizer_epsilon", 0.7500000000000001, "release.prior_epsilon + release.randomizer"),
        ("certified_epsilon", 0.9431471805599453, "release.certified_epsilon is below release.prior_epsilon"),
        ("certified_epsilon", 1.0000000000000002, "release.certified_epsilon is above release.epsilon"),
        ("mechanism_fingerprint", "00", "release.mechanism_fingerprint is not that of mechanism.json"),
        ("mechanism_fingerprint", None, "release.mechanism_fingerprint is not a string"),
    ],
)
def test_each_check_of_a_release(folder, key, value, problem):
    write(folder / "release.json", {**RELEASE, key: value})
    problems = audit_path(str(folder)).problems
    assert any(line.startswith(problem) for line in problems), problems


@pytest.mark.parametrize("key", RELEASE)
def test_every_member_of_a_release_is_needed_and_typed(folder, key):
    for value in (..., None, True, [], {}, "x", math.inf, 10**400):
        write(folder / "release.json", changed(RELEASE, (key,), "NaN" if value is math.inf else value))
        assert audit_path(str(folder)).problems, value


@pytest.mark.parametrize(
    ("changes", "prior", "problem"),
    [
        ({}, {"epsilon": 0.2}, "release.prior_epsilon is not prior.epsilon of mechanism.json"),
        ({"prior_epsilon": 0, "certified_epsilon": 0.7}, {"epsilon": 0.25}, "release.prior_epsilon is not prior"),
        ({}, {"epsilon": "0.25"}, "prior.epsilon is not a finite float >= 0"),
        ({}, {}, "prior.epsilon is not a finite float >= 0"),
        ({"certified_delta": 0.1}, {"epsilon": 0.25}, "release.certified_delta is not certificate.delta"),
        ({"records": 5, "shards": {"a": 2, "b": 2}}, {"epsilon": 0.25}, "release.shards do not add up"),
        ({"records": 2, "shards": {"a": True, "b": True}}, {"epsilon": 0.25}, "release.shards do not add up"),
        ({"records": 5, "shards": {"a": "5"}}, {"epsilon": 0.25}, "release.shards do not add up"),
        ({"shards": {"a": 5}}, {"epsilon": 0.25}, "release.shards do not add up"),
        ({"records": 5, "shards": {"a": 2, "b": 3}, "certified_delta": 0}, {"epsilon": 0.25}, None),
    ],
)
def test_a_release_agrees_with_its_mechanism_and_with_itself(folder, changes, prior, problem):
    write(folder / "release.json", RELEASE | changes)
    write(folder / "mechanism.json", RESPONSE | {"prior": {"weights": [1.0, 0.0, 0.0]} | prior})
    problems = audit_path(str(folder)).problems
    assert problems == () if problem is None else any(line.startswith(problem) for line in problems), problems


def test_the_shards_are_those_of_the_manifest(folder):
    write(folder / "release.json", RELEASE | {"records": 5, "shards": {"a": 2, "b": 3}})
    assert audit_path(str(folder)).problems == ()  # the audit also works on the two files without data/
    (folder / "data").mkdir()
    for name in ("a", "c", ".index"):
        (folder / "data" / name).write_text("")
    assert audit_path(str(folder)).problems == ("data/b is missing", "data/c is not one of release.shards")


def test_a_shard_name_cannot_forge_a_verdict(folder):
    write(folder / "release.json", RELEASE | {"records": 5, "shards": {"\nPASS\n": 5}})
    (folder / "data").mkdir()
    assert audit_path(str(folder)).problems == ("data/\\nPASS\\n is missing",)


def test_a_release_that_spent_nothing_on_a_prior(folder):
    write(folder / "release.json", {**RELEASE, "prior_epsilon": 0, "certified_epsilon": 0.6931471805599454})
    assert audit_path(str(folder)).problems == ()


def test_sums_are_exact(folder):
    parts = {"prior_epsilon": 1e-17, "randomizer_epsilon": 1.0, "epsilon": 1.0}
    assert 1e-17 + 1.0 <= 1.0  # true in floating point, not exactly
    write(folder / "release.json", {**RELEASE, **parts})
    problem = "release.prior_epsilon + release.randomizer_epsilon is above release.epsilon"
    assert problem in audit_path(str(folder)).problems


def test_a_release_with_a_broken_mechanism_fails(folder):
    write(folder / "mechanism.json", changed(RESPONSE, ("columns", 0, 0, 0), "100"))
    assert len(audit_path(str(folder)).problems) > 2
    (folder / "mechanism.json").write_text("{")
    assert audit_path(str(folder)).problems[0].startswith("'mechanism.json' is not valid JSON")


@pytest.mark.parametrize("missing", ["mechanism.json", "release.json"])
def test_half_a_release_fails(folder, missing):
    (folder / missing).unlink()
    assert audit_path(str(folder)).problems == (f"'{missing}' cannot be read: No such file or directory",)


def test_run_reports_and_exits(folder, capsys):
    assert run([str(folder / "mechanism.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mechanism    rr: 3 labels, 3 outputs, probabilities in units of 2^-8"
    assert lines[1].startswith("epsilon      at most 0.6931471805599454, recomputed from the weights;")
    assert lines[-1] == "PASS"
    assert run([str(folder)]) == 0
    capsys.readouterr()
    write(folder / "mechanism.json", changed(RESPONSE, ("certificate", "max_bias"), 0.5))
    assert run([str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "FAIL: certificate.max_bias is not the largest true bias, rounded up"


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["--no_such_flag", "a"]])
def test_bad_usage_exits_with_2(capsys, argv):
    with pytest.raises(SystemExit) as stopped:
        run(argv)
    assert stopped.value.code == 2
    assert "usage: labeldp audit" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nowhere.json", "a\nb", "x" * 5000, "nul\0byte"])
def test_a_path_that_does_not_exist_is_bad_usage(tmp_path, capsys, name):
    path = str(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        audit_path(path)
    with pytest.raises(SystemExit) as stopped:
        run([path])
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    assert captured.out == ""
    assert f"{path!a} does not exist: name a mechanism file" in captured.err


def test_the_auditor_imports_the_standard_library_only():
    names = set()
    modules = sorted(Path(inspect.getfile(documents)).parent.glob("*.py"))
    assert len(modules) == 7
    for node in (node for module in modules for node in ast.walk(ast.parse(module.read_text()))):
        if isinstance(node, ast.ImportFrom):
            # Relative imports may only name modules of the same folder.
            assert node.level == 0 or (node.level == 1 and "." not in (node.module or "."))
            names.update([] if node.level else [(node.module or "").split(".")[0]])
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
    assert "labeldp" not in names
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(("labels", "outputs"), [(5000, 20), (401, 401)])
def test_speed(tmp_path, labels, outputs):
    rng = random.Random(1)
    rows = [random_row(rng, outputs, 62) for _ in range(labels)]
    values = [0.1 * i for i in range(max(labels, outputs))]
    path = write(tmp_path / "m.json", mechanism_of(rows, values[:labels], values[:outputs], 62))
    start = time.process_time()
    assert audit_path(path).problems == ()
    assert time.process_time() - start < 2


# Approximate DP.

# Weights in units of 1/16. Each label has weight 5 on an output that the other label never produces; at epsilon 0,
# delta counts one more unit.
APPROXIMATE: dict[str, Any] = {
    "format": "labeldp-mechanism-1",
    "mechanism": "gaussian",
    "parameters": {},
    "epsilon": 0.0,
    "delta": 0.5,
    "bits": 4,
    "labels": [0.0, 1.0],
    "outputs": [0.0, 1.0, 2.0, 3.0],
    "columns": [[["5", 1], ["0", 1]], [["6", 1], ["5", 1]], [["5", 1], ["6", 1]], [["0", 1], ["5", 1]]],
    "certificate": {
        "epsilon": 0.0,
        "delta": 0.375,
        "bias": [1.0, 1.0],
        "max_bias": 1.0,
        "row_sum": "16",
    },
}
APPROXIMATE["fingerprint"] = fingerprint_of(APPROXIMATE)


def test_a_delta_done_by_hand_holds():
    audit = audit_mechanism(APPROXIMATE)
    assert audit.problems == ()
    assert (audit.epsilon, audit.delta, audit.certified_delta, audit.requested_delta) == (0.0, 0.375, 0.375, 0.5)
    assert "delta        at most 0.375; certified 0.375, requested 0.5" in audit_report(audit)
    assert "delta" not in audit_report(audit_mechanism(RESPONSE))


def test_a_delta_falls_with_epsilon():
    document = changed(APPROXIMATE, ("epsilon",), 0.1)
    document = changed(document, ("certificate", "epsilon"), 0.1)
    true = (5 + 6 - 5 * math.exp(0.1)) / 16
    document = changed(document, ("certificate", "delta"), true * (1 + 1e-12))
    assert audit_mechanism(document).problems == ()
    assert audit_mechanism(document).delta == pytest.approx(true, rel=1e-12)
    document = changed(document, ("certificate", "delta"), true * (1 - 1e-12))
    assert audit_mechanism(document).problems == ("certificate.delta is below the true delta at certificate.epsilon",)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("delta",), ..., "epsilon is infinite"),
        (("delta",), 0.0, "epsilon is infinite"),
        (("delta",), 0.374, "certificate.delta is above the delta requested"),
        (("delta",), 1.0, "delta is not below 1"),
        (("delta",), "0.5", "delta is not a finite float >= 0"),
        (("certificate", "delta"), math.nextafter(0.375, 0), "certificate.delta is below the true delta"),
        (("certificate", "delta"), ..., "certificate.delta is missing"),
        (("certificate", "epsilon"), 0.1, "certificate.epsilon is above the epsilon requested"),
        (("certificate", "row_sum"), "8", "certificate.row_sum is not 2^bits"),
        (("columns", 0), [["6", 1], ["0", 1]], "do not sum to 2^bits"),
    ],
)
def test_a_false_delta_is_found(path, value, problem):
    document = resigned(changed(APPROXIMATE, path, value))
    if path == ("delta",) and value in (..., 0.0):
        document["certificate"]["ratio"] = ["2", "1"]
    assert problem in "; ".join(audit_mechanism(document).problems)


def test_an_epsilon_too_large_to_recompute_delta_is_refused():
    document = changed(changed(APPROXIMATE, ("epsilon",), 1e9), ("certificate", "epsilon"), 1e9)
    assert "an audit of delta takes at most" in audit_mechanism(document).problems[0]


@pytest.mark.parametrize("seed", range(20))
def test_delta_agrees_with_every_pair_of_labels(seed):
    rng = random.Random(seed)
    k, m, bits = rng.randint(1, 6), rng.randint(2, 6), 62
    rows = [random_row(rng, m, bits) for _ in range(k)]
    document = mechanism_of(rows, [float(y) for y in range(k)], [float(c) for c in range(m)], bits)
    epsilon = rng.choice([0.0, 0.1, 1.0, 5.0])
    factor = Fraction(Decimal(epsilon).exp())
    true = max(
        sum(max(Fraction(0), p - factor * q) for p, q in zip(first, second, strict=True)) / 2**bits
        for first in rows
        for second in rows
    )
    document.update({"epsilon": epsilon, "delta": 0.999})
    document["certificate"] |= {"epsilon": epsilon, "delta": min(float(true) * (1 + 1e-12), 0.999)}
    audit = audit_mechanism(document)
    assert audit.problems == ()
    assert audit.delta == pytest.approx(float(true), rel=1e-12, abs=1e-25)


def test_a_release_must_own_up_to_its_delta(tmp_path):
    write(tmp_path / "mechanism.json", APPROXIMATE)
    release = {**RELEASE, "mechanism_fingerprint": APPROXIMATE["fingerprint"]}
    for delta, problem in ((0.375, ""), (0.374, "release.delta is below certificate.delta")):
        write(tmp_path / "release.json", {**release, "delta": delta})
        assert "; ".join(audit_path(str(tmp_path)).problems) == problem
    write(tmp_path / "release.json", release)
    assert audit_path(str(tmp_path)).problems == ("release.delta is missing",)
