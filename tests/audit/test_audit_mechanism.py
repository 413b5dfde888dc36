"""Audit of mechanism files: every number of a file is checked against the others."""

import copy
import hashlib
import json
import math
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.audit_mechanism import Audit, audit_mechanism
from labeldp.audit.audit_release import audit_report
from labeldp.audit.weight_runs import ln_at_most

from tests.audit.mechanism_files import at, changed, resigned, run_lengths, valid_mechanism
from tests.audit.written_files import PRIOR

RESPONSE: dict[str, Any] = json.loads(Path(__file__).with_name("response.json").read_text())
# Weights in units of 1/16. Each label has weight 5 on an output that the other label never produces; at epsilon 0,
# delta counts one more unit.
APPROXIMATE: dict[str, Any] = json.loads(Path(__file__).with_name("approximate.json").read_text())


def leaves(value, path=()):
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path


def name_of(path):
    return ".".join(map(str, path))


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


# Values that no other value in the file determines: the name, the parameters, and an upper bound.
FREE = {("mechanism",), ("parameters",), ("epsilon",), ("gap",)}


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
        (("bits",), 64, "mechanism.bits is not a number from 1 to 63"),
        (("bits",), 0, "mechanism.bits is not a number from 1 to 63"),
        (("certificate", "ratio"), ["2", "0"], "certificate.ratio has a denominator of 0"),
        (("columns", 0), [["128", 1], ["64", 10**30]], "the runs of column 0 do not cover 3 labels"),
        (("columns", 0), [["128", 3], ["64", 0]], "a run of column 0 is not a weight and a length >= 1"),
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
    assert "is not a string of 1 to 20 decimal digits" in problems[0] or "is not a text of the form" in problems[0]
    assert problems[0].isprintable()


def test_an_unreduced_ratio_is_the_same_fraction():
    assert not audit_mechanism(changed(RESPONSE, ("certificate", "ratio"), ["128", "64"])).problems


def test_no_ratio_is_claimed_for_rows_that_are_not_distributions():
    audit = audit_mechanism(changed(RESPONSE, ("columns", 0, 0, 0), "100"))
    assert audit.ratio is None
    assert audit.epsilon == math.inf
    assert "unbounded" in audit_report(audit)


def test_epsilon_zero():
    document = valid_mechanism([[3, 5], [3, 5]], [-1.5, 2.0], [-2.0, 7.25], 3)
    assert document["certificate"]["epsilon"] == 0.0
    audit = audit_mechanism(document)
    assert not audit.problems
    assert audit.epsilon == 0.0
    assert audit.ratio == 1


def test_extreme_floats():
    rows = [[2**62 + 1, 2**62 - 1], [2**62 - 1, 2**62 + 1]]
    tiny, huge = 5e-324, sys.float_info.max
    assert not audit_mechanism(valid_mechanism(rows, [tiny, 2 * tiny], [tiny, huge], 63)).problems
    audit = audit_mechanism(valid_mechanism(rows, [tiny, 2 * tiny], [-tiny, tiny], 63))
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
    document = valid_mechanism(*parts)
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
    document = valid_mechanism(*parts)
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


# Weights in units of 1/16. Each label has weight 5 on an output that the other label never produces; at epsilon 0,
# delta counts one more unit.
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
        (("delta",), "0.5", "delta is not of type number"),
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


def with_prior(**members):
    prior = {name: value for name, value in (PRIOR | members).items() if value is not ...}
    return RESPONSE | {"prior": prior, "rounding": "nearest"}


PUBLIC = {"release": ..., "epsilon": 0.0, "counts": ..., "records": ...}


def test_a_prior_is_a_distribution_with_its_cost():
    assert audit_mechanism(with_prior()).problems == ()
    assert audit_mechanism(with_prior(**PUBLIC)).problems == ()
    assert audit_mechanism(with_prior(missing_label=RESPONSE["labels"][1])).problems == ()


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({**PUBLIC, "release": "0f" * 16}, "prior.epsilon is 0, but prior.release names a release"),
        ({**PUBLIC, "release": "0f" * 16, "epsilon": -0.0}, "prior.epsilon is 0, but prior.release names a release"),
        ({"release": "PASS"}, "mechanism.prior.release is not a text of the form"),
        ({"release": "0f" * 16 + "\n"}, "mechanism.prior.release is not a text of the form"),
        ({"epsilon": ...}, "mechanism.prior lacks members that labeldp writes: epsilon"),
        *(({name: ...}, "prior.release or prior.label is missing") for name in ("release", "label")),
        *(({name: ...}, "prior does not have records, and counts of 3 labels") for name in ("counts", "records")),
        ({"weights": [0.5, 0.5]}, "prior.weights has 2 entries for 3 labels"),
        ({"weights": [0.5, 0.25, 0.26]}, "prior.weights are not probabilities"),
        ({"weights": [1.0, -0.5, 0.5]}, "mechanism.prior.weights is not a number from 0 to 1"),
        ({"missing_label": RESPONSE["labels"][-1] + 1}, "prior.missing_label is not a number within the label domain"),
        (
            {"missing_label": RESPONSE["labels"][0], **PUBLIC},
            "prior.epsilon is 0, but prior.missing_label",
        ),
    ],
)
def test_each_check_of_a_prior(members, problem):
    [found] = audit_mechanism(with_prior(**members)).problems
    assert found.startswith(problem)


def test_a_choice_follows_from_the_errors_of_the_mechanisms_compared():
    errors = {"unbiased": None, **{f"bias_limited:bias={bias}": 4.0 for bias in (0.02, 0.05, 0.1, 0.2, 0.3)}}
    errors |= {"bias_limited:bias=0.1": 2.4, "rr_on_bins": 2.0}
    good = {"mechanism": "bias_limited:bias=0.1", "model_errors": errors}
    assert audit_mechanism(RESPONSE | {"choice": good}).problems == ()
    # If the first one is a constant.
    assert audit_mechanism(RESPONSE | {"choice": good | {"mechanism": "rr_on_bins"}}).problems == ()
    for choice in (
        None, [], {}, {"mechanism": "unbiased"},
        *(good | {"mechanism": name} for name in (3, "a\nPASS", "unbiased", "bias_limited:bias=0.2")),
        *(good | {"model_errors": value} for value in ({}, errors | {"rr": 1.0})),
        *(good | {"model_errors": errors | {"unbiased": error}} for error in (-1.0, True, "1")),
    ):  # fmt: skip
        assert len(audit_mechanism(RESPONSE | {"choice": choice}).problems) == 1, choice


def test_parameters_are_short_values():
    fine = {"loss": "squared", "bias": 0.2, "k": 3, "pure": True, "none": None}
    assert audit_mechanism(RESPONSE | {"parameters": fine}).problems == ()
    for parameters in (
        {"": 0}, {"a\nPASS": 0}, {"a": "b\nPASS"}, {"a": "x" * 65}, {"a": []}, {"a": {}}, {"a": math.inf},
        {"a": 10**400}, {f"p{i}": i for i in range(65)},
    ):  # fmt: skip
        [problem] = audit_mechanism(RESPONSE | {"parameters": parameters}).problems
        assert "parameters" in problem
        assert problem.isprintable()
