"""The report page shows the facts of the release, and text from files is escaped."""

import html
import json
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.snapshots import file_name, names

LABEL = "<script>alert('y')</script>"


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def rows_of(mechanism: dict[str, Any]) -> list[list[Fraction]]:
    """Exact P(output | label), one row per label."""
    columns = [[int(weight) for weight, length in runs for _ in range(length)] for runs in mechanism["columns"]]
    return [[Fraction(weight, 2 ** mechanism["bits"]) for weight in row] for row in zip(*columns, strict=True)]


def test_the_facts_are_those_of_the_release(page: Any, released: Path) -> None:
    release, mechanism = load(released / "release.json"), load(released / "mechanism.json")
    certificate = page.facts("Certificate")

    assert page.facts("From release.json and mechanism.json") == {
        "Label domain": "7 values, 0 to 6; public, declared in advance",
        "Other labels": "outside the domain: clamped to its nearest end; "
        "between two of its values: rounded to the nearest",
        "Mechanism": "rr_on_bins, loss = squared",
        "Records": f"{release['records']} in 1 file; 0 left out without a usable label",
        "Filter": "<b>f</b>=1",
        "Record identity": "file and row",
        "Input digest": release["input_digest"],
        "Versions": ", ".join(f"{name} {version}" for name, version in release["versions"].items()),
    }
    assert (
        certificate["\u03b5 of the release"] == f"{release['certified_epsilon']!r}; requested: {release['epsilon']!r}"
    )
    epsilon = mechanism["certificate"]["epsilon"]
    assert certificate["\u03b5 of the labels"] == f"{epsilon!r}; requested: {mechanism['epsilon']!r}"
    assert certificate["Largest likelihood ratio"] == " / ".join(mechanism["certificate"]["ratio"])
    assert certificate["Largest bias"] == repr(release["max_bias"])
    assert certificate["Row sums"] == f"all 7 are exactly 262 = {2**62}"
    assert certificate["Fingerprint"] == release["mechanism_fingerprint"]
    losses = ", ".join(f"{name} {value!r}" for name, value in release["expected_loss"].items())
    assert certificate["Expected loss under the noisy prior"] == losses
    assert f"This release contains {release['records']} records" in page.text
    assert "Audit passed" in page.text
    assert f"ratio {'/'.join(mechanism['certificate']['ratio'])}, the largest ratio" in page.text
    assert "PASS" in page.text


def test_date_and_party_are_in_the_head(page: Any, released: Path, damaged: Path, report_on: Any) -> None:
    lines = (released.parent / "labeldp_ledger.jsonl").read_text().splitlines()
    date = json.loads(lines[-1])["time"][:10]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert f"Released on {date} \u2713" in page.text
    assert f"Released on {date} by A & <b>B</b> \u2713" in report_on(damaged, "--party=A & <b>B</b>").text
    (damaged.parent / "labeldp_ledger.jsonl").unlink()
    assert "Released on" not in report_on(damaged).text


def test_every_cell_of_a_wide_table_names_its_column(page_text: str, page: Any) -> None:
    """On a telephone, the head of these tables is not shown."""
    tables = re.findall(r'<table class="numbers stack">.*?</table>', page_text, re.DOTALL)
    assert len(tables) == 5
    for table in tables:
        head, body = table.split("</thead>")
        names = [html.unescape(re.sub("<.*?>", "", name)) for name in re.findall(r"<th scope=.col.*?</th>", head)]
        for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL):
            cells = re.findall(r'<td[^>]*data-label="(.*?)"', row)
            assert [html.unescape(cell) for cell in cells] == names[1:]


def test_the_budget_is_that_of_the_release(page: Any, released: Path) -> None:
    release, mechanism = load(released / "release.json"), load(released / "mechanism.json")
    _, prior, labels, together = next(
        rows for caption, rows in page.tables.items() if caption.startswith("Privacy budget")
    )

    assert prior[:2] == ["prior", f"{release['prior_epsilon']:.4g}"]
    assert labels[:2] == ["labels", f"{mechanism['certificate']['epsilon']:.4g}"]
    assert together[:2] == ["total", f"{release['certified_epsilon']:.4g}"]
    assert "Privacy budget \u03b5 \u2264 1an observer" in page.text
    assert "at most 73.2 % certain" in page.text  # e / (1 + e), rounded up
    assert "a factor of at most e\u03b5 = 2.719" in page.text


def test_the_best_label_inference_attack_is_that_of_the_integers(page: Any, released: Path) -> None:
    """The success of the best guess, in exact arithmetic; the bound for the largest weight of the prior."""
    mechanism = load(released / "mechanism.json")
    rows, prior = rows_of(mechanism), [Fraction(weight) for weight in mechanism["prior"]["weights"]]
    informed = sum(
        max(weight * row[output] for weight, row in zip(prior, rows, strict=True)) for output in range(len(rows[0]))
    )
    likeliest = max(prior)
    factor = math.exp(mechanism["certificate"]["epsilon"])
    bound = float(likeliest) * factor / (float(likeliest) * factor + 1 - float(likeliest)) - float(likeliest)
    caption = next(caption for caption in page.tables if caption.startswith("Best label-inference attack."))
    # With seven labels, a tolerance of 1/20 of the range changes nothing.
    (row,) = page.tables[caption][1:]
    assert row[0] == "the label itself"
    assert [float(cell.removesuffix("%")) for cell in row[1:]] == [
        pytest.approx(100 * float(value), rel=6e-3) for value in (informed, likeliest, informed - likeliest, bound)
    ]


def test_the_errors_are_those_of_the_integers(page: Any, released: Path) -> None:
    mechanism = load(released / "mechanism.json")
    outputs = [Fraction(output) for output in mechanism["outputs"]]
    table = page.tables["All labels. Values below a billionth of their range are shown as 0."][1:]

    assert len(table) == 7
    for label, weight, row, cells in zip(
        mechanism["labels"], mechanism["prior"]["weights"], rows_of(mechanism), table, strict=True
    ):
        bias = sum(p * t for p, t in zip(row, outputs, strict=True)) - Fraction(label)
        squared = sum(p * (t - Fraction(label)) ** 2 for p, t in zip(row, outputs, strict=True))
        deviation = math.sqrt(squared - bias**2)
        numbers = [float(cell.rstrip("%").replace("\u2212", "-")) for cell in cells]
        likeliest = max(range(len(row)), key=row.__getitem__)
        assert numbers == pytest.approx(
            [label, 100 * weight, float(outputs[likeliest]), 100 * float(row[likeliest]), float(bias), deviation,
             math.sqrt(squared)], rel=6e-3,
        )  # fmt: skip


def test_the_ledger_is_added_up(page: Any, released: Path, spent: Any) -> None:
    header, first, second = page.tables["All runs"]

    assert header == ["Time", "command", "label", "output", "records", "\u03b5 added", "total \u03b5"]
    assert first[1:5] == ["privatize", LABEL, "other", "2000"]
    assert second[1:5] == [
        "privatize",
        LABEL,
        "released (this release)",
        str(load(released / "release.json")["records"]),
    ]
    assert float(second[6]) == pytest.approx(spent(released.parent), rel=1e-3)
    assert float(first[5]) + float(second[5]) == pytest.approx(spent(released.parent), rel=1e-3)
    assert str(released.parent) not in page.text
    assert "does not contain the whole release" not in page.text


def test_deltas_of_the_ledger_are_added_up(damaged: Path, report_on: Any) -> None:
    """A release of another mechanism with (0.5, 1e-6)-DP is made twice and charged once."""
    ledger = damaged.parent / "labeldp_ledger.jsonl"
    charge = {"what": "labels", "epsilon": 0.5, "delta": 1e-6, "release": "gaussian"}
    more = {"request": "x", "time": "now", "command": "apply", "charges": [charge]}
    ledger.write_text(ledger.read_text() + f"{json.dumps(more)}\n" * 2)
    page = report_on(damaged)
    header, *runs = page.tables["All runs"]

    assert header[-2:] == ["\u03b4 added", "total \u03b4"]
    assert [run[-2:] for run in runs] == [["0", "0"], ["0", "0"], ["1e\u221206", "1e\u221206"], ["0", "1e\u221206"]]
    assert float(runs[3][5]) == 0
    assert float(runs[3][6]) == pytest.approx(float(runs[1][6]) + 0.5, rel=1e-3)
    assert "except with a probability of the order of \u03b4" in page.text


def test_a_ledger_of_something_else_is_said_to_be_one(damaged: Path, report_on: Any) -> None:
    ledger = damaged.parent / "labeldp_ledger.jsonl"
    ledger.write_text(ledger.read_text().splitlines()[0] + "\n")

    assert "does not contain the whole release" in report_on(damaged).text


def test_without_a_ledger_there_is_no_section_on_it(damaged: Path, report_on: Any) -> None:
    (damaged.parent / "labeldp_ledger.jsonl").unlink()

    assert "Privacy ledger" not in report_on(damaged).headings


def test_it_refers_to_nothing_outside(page_text: str, page: Any) -> None:
    tags = Counter(tag for tag, _ in page.elements)

    assert not tags.keys() & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a", "use", "image"}
    attributes = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "action", "xmlns")]
    assert not re.search(r"https?:|url\(|@import|javascript:|//[a-z]", page_text)
    (policy,) = (a["content"] for t, a in page.elements if t == "meta" and "Security" in a.get("http-equiv", ""))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_it_can_be_read_aloud(page: Any) -> None:
    tags = Counter(tag for tag, _ in page.elements)

    charts = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(charts) == 3
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 40 for chart in charts)
    assert tags["caption"] == tags["table"] == tags["thead"]
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.elements if tag == "th")
    assert [attributes["lang"] for tag, attributes in page.elements if tag == "html"] == ["en"]
    assert tags["h1"] == tags["main"] == tags["title"] == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes["aria-labelledby"] in ids for tag, attributes in page.elements if tag == "section")


def test_names_are_text(page_text: str, page: Any) -> None:
    assert "<script" not in page_text
    assert "<b>" not in page_text
    assert f"label {LABEL}, mechanism" in page.text


def test_hostile_text_in_files_is_text(damaged: Path, report_on: Any) -> None:
    attack = '"><img src=x onerror=alert(1)>{{ 7 * 7 }}'
    mechanism, release = load(damaged / "mechanism.json"), load(damaged / "release.json")
    mechanism["parameters"] = {"a": attack}  # the audit refuses such a name, version or digest
    release |= {
        "identity": attack,
        "output": release["output"] | {"columns": [{"name": attack, "type": "string"}]},
        "parameters": {"a": attack},
        "where": attack,
        "label": f"\x1b[2J{attack}",
    }
    (damaged / "mechanism.json").write_text(json.dumps(mechanism) + "\n")
    (damaged / "release.json").write_text(json.dumps(release, indent=2) + "\n")

    page = report_on(damaged)

    assert "img" not in {tag for tag, _ in page.elements}
    assert page.text.count(attack) >= 5
    assert "\x1b" not in page.text
    assert "\N{REPLACEMENT CHARACTER}[2J" in page.text


def test_long_names_are_cut(damaged: Path, report_on: Any) -> None:
    release = load(damaged / "release.json") | {"label": "y" * 100_000, "where": "i" * 100_000}
    (damaged / "release.json").write_text(json.dumps(release, indent=2) + "\n")

    assert "y" * 79 + "\u2026" in report_on(damaged).text


def test_the_worth_of_a_label_by_hand(solved: Any, report_on: Any) -> None:
    """Randomized response on two equally likely labels: label and output have correlation (E - 1) / (E + 1).

    Its mean output is affine in the label, so the debiased labels have no bias, and noise of v (1 / correlation^2 - 1).
    """
    page = report_on(solved({0: 1, 1: 1}, mechanism="rr"))

    correlation = (math.e - 1) / (math.e + 1)
    worth, ratios = correlation**2, (10, 100, 1000, 10_000, 100_000)
    caption, table = next((c, rows) for c, rows in page.tables.items() if c.startswith("Worth of one released label"))
    assert caption == "Worth of one released label by records per parameter of the model"
    plain_bias = 1 / (math.e + 1) ** 2 / 0.25  # each label is off by 1 / (E + 1); the variance is 1/4
    for ratio, row in zip(ratios, table[1:], strict=True):
        debiased = 1 / worth / ratio
        plain = plain_bias + 1 / ratio
        error = min(debiased, plain)
        assert float(row[0].replace(",", "")) == ratio
        assert float(row[1].rstrip("%")) / 100 == pytest.approx(error, rel=6e-3)
        assert float(row[2].rstrip("%")) / 100 == pytest.approx(plain_bias if plain < debiased else 0, rel=6e-3)
        assert float(row[3]) == pytest.approx(1 / ratio / error, rel=1e-3)
    # E[M(y)] = 1 / (E + 1) + y (E - 1) / (E + 1).
    assert f"true = (released - {1 / (math.e + 1):.6g}) / {correlation:.6g}" in page.text
    assert "biased towards 0.5" in page.text
    assert "It leaves a bias with a root mean square of 0 and a maximum of 0." in page.text
    assert f"Worth of one released label {worth:.4g}true labels, for a model with 1,000 records" in page.text


def test_the_page_begins_with_the_blocks_and_warnings(page: Any, page_text: str, released: Path) -> None:
    assert re.findall("<dt>(Released|Privacy|Use|Next)</dt>", page_text) == ["Released", "Privacy", "Use", "Next"]
    shown = {*load(released / "release.json")["warnings"]} - {"label_error", "wide_residuals"}
    assert page_text.count('<p class="warning">') >= len(shown)
    caption = next(c for c in page.tables if c.startswith("Worth of one released label"))
    assert [row[0] for row in page.tables[caption][1:]] == ["1", "2", "10", "100"], "one feature: two parameters"


def test_the_census(census: Path, read_csv: Any, solved: Any, report_on: Any) -> None:
    """The prior is the true histogram of a public data set, given as a public prior."""
    counts = Counter(read_csv(census)["work"])
    page = report_on(solved({float(label): count for label, count in counts.items()}, mechanism="rr_on_bins"))

    assert "It was solved for a public prior; no private data was used." in page.text
    assert "The labels form 2 bins; all labels of a bin have the same output distribution." in page.text
    weeks = np.repeat([float(label) for label in counts], list(counts.values()))
    loss = re.search(r"squared ([\d.]+)", page.facts("Certificate")["Expected loss under the public prior"])
    assert loss is not None
    # The mean as the only output would have the variance of the labels as its loss; an exact output is not private.
    assert 0 < float(loss[1]) < weeks.var()
    assert f"a standard deviation of {weeks.std():.4g}" in page.text


SOLVED: dict[str, tuple[dict[float, float], dict[str, Any]]] = {
    "unbiased": ({0: 5, 1: 3, 2: 1, 10: 1}, {"mechanism": "unbiased"}),
    "equally likely": ({0: 1, 1: 1}, {"mechanism": "rr"}),
    "much epsilon": ({label: 1 + (label == 3) for label in range(6)}, {"mechanism": "rr", "epsilon": 8}),
    "little epsilon": ({label: 1 + (label == 3) for label in range(6)}, {"mechanism": "rr"}),
    "less than nothing": (dict.fromkeys(range(9), 1), {"mechanism": "unbiased", "epsilon": 0.05}),
    "useless": ({3: 1}, {"mechanism": "rr"}),
    "not pure": ({0: 3, 1: 2, 2: 1}, {"mechanism": "gaussian", "delta": 1e-6}),
    "large domain": ({label: math.exp(-label / 300) for label in range(1000)}, {"mechanism": "rr"}),
}


# Mechanisms whose whole pages are kept: those of others have the same sentences.
WHOLE = {"large domain", "less than nothing", "useless"}


@pytest.mark.parametrize("name", SOLVED)
def test_a_mechanism_solved_for_a_public_prior(name: str, solved: Any, report_on: Any, snapshot: Any) -> None:
    prior, flags = SOLVED[name]
    page = report_on(solved(prior, **flags))
    assert "Audit passed" in page.text
    assert not {"nan", "inf", "None"} & set(page.text.replace(",", " ").split())
    if name in WHOLE:
        snapshot(f"solved/{name}", "\n".join(page.shown))


def test_no_snapshot_is_left_over() -> None:
    assert names("solved") == set(map(file_name, WHOLE))
