"""The report: its facts are the release's, it refuses what does not hold, and a browser shows it."""

import csv
import html
import json
import math
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the extra evaluation is not installed")

from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import solve
from labeldp.pipelines.reporting.report_command import attained, bound

LABEL = "<script>alert('y')</script>"
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip
WIDTH, HEIGHT = 1280, 900
NARROW = 375
LIGHT, DARK = (255, 255, 255), (0x14, 0x17, 0x1B)


@dataclass
class Page(HTMLParser):
    """A page read by the standard library: its visible text, its elements, and its tables by caption."""

    text: str = ""
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    headings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""

    @classmethod
    def of(cls, text: str) -> "Page":
        page = cls()
        page.feed(text)
        page.close()
        page.text = re.sub(r"\s+", " ", page.text)
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "rect", "path", "circle"):
            self._open.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "table":
            self.tables[self._caption.strip()] = [[cell.strip() for cell in row] for row in self._rows]

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if "caption" in self._open:
            self._caption += data
        elif "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data
        elif "h2" in self._open:
            self.headings[-1] += data

    def facts(self, caption: str) -> dict[str, str]:
        """A table of two columns."""
        return {row[0]: row[1] for row in self.tables[caption][1:]}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """A release whose label has a hostile name, of 2,000 records; two runs are in the ledger beside it."""
    folder = tmp_path_factory.mktemp("report")
    log = folder / "log.csv"
    with log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["<b>f</b>", LABEL])
        writer.writerows([i % 3, (i * i) % 7 % 5] for i in range(2000))
    flags = {
        "input": log, "input_format": "csv", "label": LABEL, "label_min": 0, "label_max": 6, "label_step": 1,
        "noise_key_file": key_file, "output_format": "parquet",
    }  # fmt: skip
    for name, epsilon, where in (("other", 0.5, None), ("released", 1, "<b>f</b>=1")):
        invoke(command("privatize", flags | {"output": folder / name, "epsilon": epsilon, "where": where})).ok()
    return folder / "released"


@pytest.fixture(scope="module")
def page_text(released: Path, invoke: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("page") / "page.html"
    outcome = invoke(["report", str(released), f"--output={output}"]).ok()
    assert outcome.out == f"report     {output}\n"
    assert outcome.err == ""
    return output.read_text()


@pytest.fixture(scope="module")
def page(page_text: str) -> Page:
    return Page.of(page_text)


@pytest.fixture
def copied(released: Path, tmp_path: Path) -> Path:
    """A copy of the release, to be spoilt."""
    shutil.copy(released.parent / "labeldp_ledger.jsonl", tmp_path)
    return Path(shutil.copytree(released, tmp_path / "released"))


@pytest.fixture
def solved(tmp_path: Path, invoke: Any) -> Callable[..., Path]:
    """(prior as label: weight, flag=value, ...) -> the mechanism file solved for it."""

    def run(prior: dict[float, float], **flags: Any) -> Path:
        (tmp_path / "prior.csv").write_text("".join(f"{label},{weight}\n" for label, weight in prior.items()))
        output = tmp_path / "mechanism.json"
        given = {"prior": tmp_path / "prior.csv", "output": output, "epsilon": 1, **flags}
        invoke(["solve", *(f"--{name}={value}" for name, value in given.items())]).ok()
        return output

    return run


def report_on(path: Path, invoke: Any) -> Page:
    output = path.parent / "page.html"
    invoke(["report", str(path), f"--output={output}"]).ok()
    text = output.read_text()
    output.unlink()
    assert len(text) < 1_000_000
    return Page.of(text)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def rows_of(mechanism: dict[str, Any]) -> list[list[Fraction]]:
    """P(output | label), exactly: a row per label."""
    columns = [[int(weight) for weight, length in runs for _ in range(length)] for runs in mechanism["columns"]]
    return [[Fraction(weight, 2 ** mechanism["bits"]) for weight in row] for row in zip(*columns, strict=True)]


def test_the_facts_are_those_of_the_release(page: Page, released: Path) -> None:
    release, mechanism = load(released / "release.json"), load(released / "mechanism.json")
    certificate = page.facts("The certificate")

    assert page.facts("From release.json and mechanism.json") == {
        "Label domain": "7 values, 0 to 6; public, declared beforehand",
        "Other labels": "count as the nearest end of the domain; between two of its values, as the nearest",
        "Mechanism": "rr_on_bins, loss = squared",
        "Records": f"{release['records']} in 1 file; 0 without a usable label were left out",
        "Only records with": "<b>f</b>=1",
        "Records are named by": "file and row",
        "Digest of the input": release["input_digest"],
        "Made with": ", ".join(f"{name} {version}" for name, version in release["versions"].items()),
    }
    assert (
        certificate["\u03b5 of the release"] == f"{release['certified_epsilon']!r}; asked for: {release['epsilon']!r}"
    )
    epsilon = mechanism["certificate"]["epsilon"]
    assert certificate["\u03b5 of the labels"] == f"{epsilon!r}; asked for: {mechanism['epsilon']!r}"
    assert certificate["Largest likelihood ratio"] == " / ".join(mechanism["certificate"]["ratio"])
    assert certificate["Largest bias"] == repr(release["max_bias"])
    assert certificate["Row sums"] == f"all 7 are exactly 262 = {2**62}"
    assert certificate["Fingerprint"] == release["mechanism_fingerprint"]
    losses = ", ".join(f"{name} {value!r}" for name, value in release["expected_loss"].items())
    assert certificate["Expected loss, under the noised histogram"] == losses
    assert f"{release['records']} records were released" in page.text
    assert "Audit passed" in page.text
    assert f"ratio {'/'.join(mechanism['certificate']['ratio'])}, the largest factor" in page.text
    assert "PASS" in page.text


def test_the_budget_is_that_of_the_release(page: Page, released: Path) -> None:
    release, mechanism = load(released / "release.json"), load(released / "mechanism.json")
    _, prior, labels, together = next(rows for caption, rows in page.tables.items() if caption.startswith("The budget"))

    assert prior[:2] == ["histogram", f"{release['prior_epsilon']:.4g}"]
    assert labels[:2] == ["labels", f"{mechanism['certificate']['epsilon']:.4g}"]
    assert together[:2] == ["together", f"{release['certified_epsilon']:.4g}"]
    assert "Privacy budget \u03b5 \u2264 1whoever" in page.text
    assert "at most 73.11% sure" in page.text  # e / (1 + e), rounded up
    assert "a factor of at most e\u03b5 = 2.719" in page.text


def test_the_errors_are_those_of_the_integers(page: Page, released: Path) -> None:
    mechanism = load(released / "mechanism.json")
    outputs = [Fraction(output) for output in mechanism["outputs"]]
    table = page.tables["All labels. Values below a billionth of the label range are shown as 0."][1:]

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


def test_the_ledger_is_added_up(page: Page, released: Path, spent: Any) -> None:
    header, first, second = page.tables["All runs"]

    assert header == ["Time", "run", "label", "output", "records", "\u03b5 added", "\u03b5 in all"]
    assert first[1:5] == ["privatize", LABEL, "other", "2000"]
    assert second[1:5] == ["privatize", LABEL, "released (this one)", str(load(released / "release.json")["records"])]
    assert float(second[6]) == pytest.approx(spent(released.parent), rel=1e-3)
    assert float(first[5]) + float(second[5]) == pytest.approx(spent(released.parent), rel=1e-3)
    assert str(released.parent) not in page.text
    assert "does not name all of this release" not in page.text


def test_deltas_of_the_ledger_are_added_up(copied: Path, invoke: Any) -> None:
    """A release of another mechanism, of (0.5, 1e-6)-DP, made twice: charged once."""
    ledger = copied.parent / "labeldp_ledger.jsonl"
    charge = {"what": "labels", "epsilon": 0.5, "delta": 1e-6, "release": "gaussian"}
    more = {"request": "x", "time": "now", "command": "apply", "charges": [charge]}
    ledger.write_text(ledger.read_text() + f"{json.dumps(more)}\n" * 2)
    page = report_on(copied, invoke)
    header, *runs = page.tables["All runs"]

    assert header[-2:] == ["\u03b4 added", "\u03b4 in all"]
    assert [run[-2:] for run in runs] == [["0", "0"], ["0", "0"], ["1e\u221206", "1e\u221206"], ["0", "1e\u221206"]]
    assert float(runs[3][5]) == 0
    assert float(runs[3][6]) == pytest.approx(float(runs[1][6]) + 0.5, rel=1e-3)
    assert "rare cases that \u03b4 stands for" in page.text


def test_a_ledger_of_something_else_is_said_to_be_one(copied: Path, invoke: Any) -> None:
    ledger = copied.parent / "labeldp_ledger.jsonl"
    ledger.write_text(ledger.read_text().splitlines()[0] + "\n")

    assert "does not name all of this release" in report_on(copied, invoke).text


def test_without_a_ledger_there_is_no_section_on_it(copied: Path, invoke: Any) -> None:
    (copied.parent / "labeldp_ledger.jsonl").unlink()

    assert "Spent so far" not in report_on(copied, invoke).headings


def test_it_refers_to_nothing_outside(page_text: str, page: Page) -> None:
    tags = Counter(tag for tag, _ in page.elements)

    assert not tags.keys() & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a", "use", "image"}
    attributes = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "action", "xmlns")]
    assert not re.search(r"https?:|url\(|@import|javascript:|//[a-z]", page_text)
    (policy,) = (a["content"] for t, a in page.elements if t == "meta" and "Security" in a.get("http-equiv", ""))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_it_can_be_read_aloud(page: Page) -> None:
    tags = Counter(tag for tag, _ in page.elements)

    charts = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(charts) == 4
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 40 for chart in charts)
    assert tags["caption"] == tags["table"] == tags["thead"]
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.elements if tag == "th")
    assert [attributes["lang"] for tag, attributes in page.elements if tag == "html"] == ["en"]
    assert tags["h1"] == tags["main"] == tags["title"] == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes["aria-labelledby"] in ids for tag, attributes in page.elements if tag == "section")


def test_names_are_text(page_text: str, page: Page) -> None:
    assert "<script" not in page_text
    assert "<b>" not in page_text
    assert f"label {LABEL}, mechanism" in page.text


def test_hostile_text_in_files_is_text(copied: Path, invoke: Any) -> None:
    attack = '"><img src=x onerror=alert(1)>{{ 7 * 7 }}'
    mechanism, release = load(copied / "mechanism.json"), load(copied / "release.json")
    mechanism["parameters"] = {attack: attack}
    release |= {
        "identity": attack,
        "versions": {attack: attack},
        "input_digest": attack,
        "where": attack,
        "label": attack,
    }
    (copied / "mechanism.json").write_text(json.dumps(mechanism))
    (copied / "release.json").write_text(json.dumps(release))

    page = report_on(copied, invoke)

    assert "img" not in {tag for tag, _ in page.elements}
    assert page.text.count(attack) >= 6


def test_long_names_are_cut(copied: Path, invoke: Any) -> None:
    release = load(copied / "release.json")
    (copied / "release.json").write_text(json.dumps(release | {"label": "y" * 100_000, "identity": "i" * 100_000}))

    assert "y" * 79 + "\u2026" in report_on(copied, invoke).text


def test_the_same_release_gives_the_same_page(released: Path, page_text: str, invoke: Any, tmp_path: Path) -> None:
    invoke(["report", str(released / "release.json"), f"--output={tmp_path / 'again.html'}"]).ok()

    assert (tmp_path / "again.html").read_text() == page_text


def test_it_goes_into_the_release_by_default(copied: Path, invoke: Any, page_text: str) -> None:
    assert invoke(["report", str(copied)]).ok().out == f"report     {copied / 'report.html'}\n"
    assert (copied / "report.html").read_text() == page_text


def test_a_mechanism_file_goes_into_the_page_beside_it(solved: Any, invoke: Any) -> None:
    path = solved({0: 1, 1: 3})
    invoke(["report", str(path)]).ok()

    assert (path.parent / "report.html").exists()
    assert {file.name for file in path.parent.iterdir()} == {"prior.csv", "mechanism.json", "report.html"}


def change(path: Path, keys: tuple[str, ...], value: Any) -> None:
    document = load(path)
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("file", "keys", "value", "problem"),
    [
        ("mechanism.json", ("certificate", "epsilon"), 0.1, "certificate.epsilon is below the true epsilon"),
        ("mechanism.json", ("fingerprint",), "00", "fingerprint is not that of"),
        ("mechanism.json", ("prior", "weights"), [0.7, 0.1, 0.1, 0.1, 0, 0, 0], "another expected squared loss"),
        ("mechanism.json", ("prior", "epsilon"), 0.2, "release.prior_epsilon is not prior.epsilon"),
        ("release.json", ("epsilon",), 0.5, "release.certified_epsilon is above release.epsilon"),
        ("release.json", ("prior_epsilon",), 0.0, "release.prior_epsilon is not prior.epsilon"),
        ("release.json", ("mechanism",), "unbiased", "another mechanism"),
        ("release.json", ("adjacency",), "nothing is ever learnt", "another adjacency"),
        ("release.json", ("domain", "max"), 7.0, "another label domain"),
        ("release.json", ("max_bias",), 0.0, "another max_bias"),
        ("release.json", ("certified_delta",), 0.1, "release.certified_delta is not certificate.delta"),
        ("release.json", ("delta",), 0.1, "another delta"),
        ("release.json", ("expected_loss", "absolute"), 1e-9, "another expected absolute loss"),
        ("release.json", ("records",), 1, "do not add up to release.records"),
        ("release.json", ("records_without_label",), -1, "records_without_label is negative"),
        ("release.json", ("label",), 3, "label is not of the right type"),
        ("release.json", ("shards",), 3, "shards is not of the right type"),
        ("release.json", ("max_bias",), 10**400, "too large"),
        ("release.json", ("format",), "labeldp-release-9", "is not a release manifest"),
    ],
)
def test_what_does_not_hold_gets_no_page(
    copied: Path, invoke: Any, tmp_path: Path, file: str, keys: tuple[str, ...], value: Any, problem: str
) -> None:
    change(copied / file, keys, value)
    outcome = invoke(["report", str(copied), f"--output={tmp_path / 'page.html'}"])

    assert outcome.code == 1
    assert problem in outcome.error
    assert outcome.error.startswith(f"labeldp report: error: {copied}")
    assert outcome.out == ""
    assert not (tmp_path / "page.html").exists()
    assert not (copied / "report.html").exists()


@pytest.mark.parametrize("missing", ["release.json", "mechanism.json"])
def test_a_release_without_its_files(copied: Path, invoke: Any, missing: str) -> None:
    (copied / missing).unlink()
    outcome = invoke(["report", str(copied)])

    assert outcome.code == 1
    assert missing in outcome.error
    assert not (copied / "report.html").exists()


def test_a_damaged_ledger(copied: Path, invoke: Any) -> None:
    (copied.parent / "labeldp_ledger.jsonl").write_text("{}\n")
    outcome = invoke(["report", str(copied)])

    assert outcome.code == 1
    assert "labeldp_ledger.jsonl is damaged" in outcome.error


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([""], "does not exist"),
        (["released", "--output=nowhere/page.html"], "--output nowhere/page.html lies in a folder that does not exist"),
        (["released", "--output=released"], "--output released is a folder"),
        (["released", "--output="], "--output is empty"),
        (["released", "--output=labeldp_ledger.jsonl"], "--output labeldp_ledger.jsonl exists: name another file"),
        (["released", "--ouput=page.html"], "--ouput"),
        ([], "FOLDER|FILE"),
    ],
)
def test_bad_usage(
    copied: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(copied.parent)
    outcome = invoke(["report", *arguments])

    assert outcome.code == 2
    assert problem in outcome.error
    assert {path.name for path in copied.parent.iterdir()} == {"released", "labeldp_ledger.jsonl"}


def test_an_unbiased_mechanism(solved: Any, invoke: Any) -> None:
    page = report_on(solved({0: 5, 1: 3, 2: 1, 10: 1}, mechanism="unbiased"), invoke)

    assert "Bias none" in page.text
    assert "Squared loss, on the labels as they are." in page.text
    assert "Do not repair the labels" in page.text
    assert "Whether to debias" not in page.text
    table = page.tables["All labels. Values below a billionth of the label range are shown as 0."]
    assert [row[4] for row in table[1:]] == ["0"] * 4


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (8, "For example, 3, the likeliest value, is released as 3 in at least 90%"),
        (1, "a value between 0 and 5 in 90%"),
    ],
)
def test_the_example_says_what_most_often_comes_out(solved: Any, invoke: Any, epsilon: float, said: str) -> None:
    page = report_on(solved({label: 1 + (label == 3) for label in range(6)}, mechanism="rr", epsilon=epsilon), invoke)

    assert said in page.text


def test_the_worth_of_labels_by_hand(solved: Any, invoke: Any) -> None:
    """Randomized response on two labels, one half each: the correlation of label and output is (E - 1) / (E + 1)."""
    page = report_on(solved({0: 1, 1: 1}, mechanism="rr"), invoke)

    correlation = (math.e - 1) / (math.e + 1)
    worth = correlation**2
    # The outputs have the variance of the labels; of the noise after debiasing, v (1 / worth - 1) is left.
    expected = [[share, (1 - share) / ((1 - share) + 1 / worth - 1)] for share in (0.0, 0.5, 0.9)]
    table = page.tables["By how much of the labels\u2019 variance the features explain"][1:]
    found = [[float(row[0].rstrip("%")) / 100, float(row[1]), float(row[2])] for row in table]
    assert found == pytest.approx(np.array([[share, value, 1 / value] for share, value in expected]), rel=1e-3)
    # E[M(y)] = 1 / (E + 1) + y (E - 1) / (E + 1).
    assert f"true = (predicted - {1 / (math.e + 1):.4g}) / {correlation:.4g}" in page.text
    assert "pulled towards 0.5" in page.text
    assert "beyond it a bias of 0 is typical" in page.text


def test_labels_that_are_worth_nothing(solved: Any, invoke: Any) -> None:
    page = report_on(solved({3: 1}, mechanism="rr"), invoke)

    assert "worth nothing for training" in page.text
    assert "Whether to debias" not in page.text


def test_approximate_privacy_is_called_that(solved: Any, invoke: Any) -> None:
    path = solved({0: 1, 1: 1, 2: 1}, mechanism="gaussian", delta=1e-6)
    page = report_on(path, invoke)

    delta = load(path)["certificate"]["delta"]
    assert page.facts("The certificate")["\u03b4 of the labels"].endswith("asked for: 1e-06")
    assert delta <= 1e-6
    assert "with \u03b4 \u2264 1e-06" in page.text
    assert "Largest likelihood ratio" not in page.facts("The certificate")


def test_the_census(census: Path, read_csv: Any, solved: Any, invoke: Any) -> None:
    """The prior here is the true histogram: of a public data set, given as a public prior."""
    counts = Counter(read_csv(census)["work"])
    page = report_on(solved({float(label): count for label, count in counts.items()}, mechanism="rr_on_bins"), invoke)

    assert "It was solved for a public prior, and no data went into it." in page.text
    assert "Labels fall into 2 groups that are treated exactly alike." in page.text
    weeks = np.repeat([float(label) for label in counts], list(counts.values()))
    loss = re.search(r"squared ([\d.]+)", page.facts("The certificate")["Expected loss, under the public prior"])
    assert loss is not None
    # One output, the mean, for all labels has their variance for a loss; and no output is certain.
    assert 0 < float(loss[1]) < weeks.var()
    assert f"spread by \u00b1 {weeks.std():.4g}" in page.text


def test_large_domains_stay_readable_and_small(solved: Any, invoke: Any) -> None:
    prior = {float(label): math.exp(-label / 300) for label in range(1000)}
    page = report_on(solved(prior, mechanism="rr"), invoke)

    (table,) = (rows for caption, rows in page.tables.items() if caption.startswith("21 of 1000 labels"))
    assert [row[0] for row in table[1:]][::20] == ["0", "999"]


def test_where_the_ratio_is_attained() -> None:
    randomizer = solve("rr_on_bins", Prior(np.arange(5.0), np.array([5.0, 1, 1, 1, 5])), 1.0)
    ratio = randomizer.certificate().ratio
    assert ratio is not None
    found = attained(randomizer, ratio)

    place = randomizer.outputs.tolist().index(found.output)
    labels = randomizer.labels.tolist()
    weights = {label: int(weight) for label, weight in zip(labels, randomizer.weights[:, place], strict=True)}
    assert Fraction(weights[found.likely[0]], weights[found.unlikely[0]]) == ratio
    assert weights[found.likely[0]] == weights[found.likely[1]] == max(weights.values())
    assert weights[found.unlikely[0]] == weights[found.unlikely[1]] == min(weights.values())
    with pytest.raises(ValueError, match="no output has this"):
        attained(randomizer, ratio + 1)


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.9999999999, "1"), (1.00001, "1.001"), (0.93907, "0.9391"), (2.7182818, "2.719")]
)
def test_bounds_are_rounded_up(value: float, text: str) -> None:
    assert bound(value) == text
    assert float(text) >= value


@dataclass(frozen=True)
class Seen:
    """What a browser made of a page: its document, what the console said, and what the page asked the network for."""

    dom: str
    console: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Seen]:
    """(page, more flags) -> what headless Chromium saw."""
    named = os.environ.get("CHROMIUM")
    browser = next(filter(None, map(shutil.which, [named] if named else BROWSERS)), None)
    if browser is None:
        pytest.fail("no browser: run `make browser`, or name one in the environment variable CHROMIUM")

    def run(page: Path, *flags: str) -> Seen:
        scratch = tmp_path_factory.mktemp("browser")
        network = scratch / "network.json"
        places = (
            f"--user-data-dir={scratch / 'profile'}",
            f"--log-net-log={network}",
            f"--window-size={WIDTH},{HEIGHT}",
        )
        done = subprocess.run(
            [browser, *FLAGS, *places, *flags, "--dump-dom", page.as_uri()],
            check=True, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        asked = [event.get("params", {}) for event in load(network)["events"]]
        # What the browser asks for by itself has no origin.
        of_page = [p["url"] for p in asked if "url" in p and p.get("initiator", "not an origin") != "not an origin"]
        return Seen(done.stdout, console, of_page)

    return run


@pytest.fixture(scope="module")
def page_file(page_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browsed") / "page.html"
    path.write_text(page_text)
    return path


def colours(picture: Path) -> Counter[tuple[int, int, int]]:
    image_module: Any = pytest.importorskip("PIL.Image")
    with image_module.open(picture) as image:
        assert image.size == (WIDTH, HEIGHT)
        return Counter({colour: count for count, colour in image.convert("RGB").getcolors(1 << 24)})


def test_a_browser_shows_it_light_and_on_paper(page_file: Path, page: Page, browse: Any, tmp_path: Path) -> None:
    picture, paper = tmp_path / "light.png", tmp_path / "page.pdf"
    seen = browse(page_file, f"--screenshot={picture}", f"--print-to-pdf={paper}")

    assert (seen.console, seen.requests) == ([], [])
    shown = Page.of(seen.dom)
    assert shown.text == page.text
    assert shown.tables == page.tables
    found = colours(picture)
    assert found.most_common(1)[0][0] == LIGHT
    assert found[(0x3D, 0x74, 0xB5)] > 100  # the histogram's share of the budget
    assert found[(0xC4, 0x51, 0x1A)] > 100  # the labels'
    assert paper.read_bytes().startswith(b"%PDF-")
    assert paper.stat().st_size > 20_000


def test_a_browser_shows_it_dark(page_file: Path, browse: Any, tmp_path: Path) -> None:
    picture = tmp_path / "dark.png"
    seen = browse(page_file, f"--screenshot={picture}", "--blink-settings=preferredColorScheme=0")

    assert seen.console == []
    found = colours(picture)
    assert found.most_common(1)[0][0] == DARK
    assert found[LIGHT] == 0
    assert found[(0x74, 0xA8, 0xE6)] > 100


def test_nothing_is_wider_than_a_telephone(page_text: str, browse: Any, tmp_path: Path) -> None:
    """A page around it measures; the report itself runs no script."""
    (tmp_path / "around.html").write_text(
        f'<!DOCTYPE html><iframe style="width:{NARROW}px;border:0" srcdoc="{html.escape(page_text)}"></iframe>'
        "<output></output><script>onload = () => {"
        "const root = document.querySelector('iframe').contentDocument.documentElement;"
        "const inside = [...root.querySelectorAll('body *')].filter(e => !e.closest('.scroll table, svg'));"
        "const widest = Math.max(...inside.map(e => e.getBoundingClientRect().right));"
        "document.querySelector('output').textContent = [root.scrollWidth, widest, inside.length].join(' ');"
        "}</script>"
    )
    seen = browse(tmp_path / "around.html")

    measured = re.search(r"<output>([\d. ]+)</output>", seen.dom)
    assert measured is not None
    scroll_width, widest, elements = map(float, measured[1].split())
    assert elements > 50
    assert scroll_width <= NARROW
    assert widest <= NARROW


def test_the_browser_would_tell(browse: Any, tmp_path: Path) -> None:
    """Of errors on the console, of requests, and of a policy that was broken."""
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><img src="http://192.0.2.1/a.png"><script>console.error("wrong")</script>'
    )
    seen = browse(tmp_path / "bad.html")

    assert any("wrong" in line for line in seen.console)
    assert set(seen.requests) == {"http://192.0.2.1/a.png"}
