"""`labeldp report --claim`: the claim of every kind of release has the registry's format and states the release."""

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from labeldp.report.claim_file import claim_problem, read_claimed

from tests.gallery import Base
from tests.release_cases import over
from tests.snapshots import file_name, names

from .conftest import KINDS
from .registry_format import format_problems

ROOT = Path(__file__).parents[2]
FACTS = yaml.safe_load((ROOT / "docs/examples/claim_facts.yaml").read_text())
FROM_ELSEWHERE = {"center_origin": "A model of last year.", "prior_origin": "A census table."}
PLAIN, LINEAR, SEVERAL = KINDS[0], KINDS[2], "several labels"
# Kinds whose whole texts are kept: those of other kinds have the same sentences.
WHOLE = {*KINDS} - {PLAIN, LINEAR, "units", SEVERAL, "applied"}
COMPOSED = re.compile(r"basic composition of ([^,]*)(?:, times the (\d+) records of a unit)?, at most (\S+)\.")
NEEDED = {"center column": ["center_origin"], "public": ["prior_origin"]}


@pytest.fixture
def claim(kind: Callable[[str], Base], tmp_path: Path, invoke: Any) -> Callable[..., Any]:
    """Function (name of a kind or folder of a release, flags, fact=value, ...) -> the outcome, and the claim file."""

    def make(release: str | Path, *flags: str, **facts: Any) -> tuple[Any, Path]:
        facts = FACTS | {fact: FROM_ELSEWHERE[fact] for fact in NEEDED.get(str(release), [])} | facts
        (tmp_path / "facts.yaml").write_text(yaml.safe_dump(facts))
        path = tmp_path / "claim.yaml"
        path.unlink(missing_ok=True)
        given = [f"--claim={path}", f"--claim_facts={tmp_path / 'facts.yaml'}"]
        if isinstance(release, str):
            release, ledger = kind(release).folder, kind(release).ledger
            given.append(f"--ledger={ledger}")
        return invoke(["report", str(release), *given, *flags]), path

    return make


@pytest.fixture
def checked(kind: Callable[[str], Base], tmp_path: Path, invoke: Any) -> Callable[..., Any]:
    """Function (name of a kind, document of a claim) -> the outcome of checking it."""

    def check(name: str, document: dict[str, Any]) -> Any:
        (tmp_path / "checked.yaml").write_text(yaml.safe_dump(document))
        given = [f"--check_claim={tmp_path / 'checked.yaml'}", f"--ledger={kind(name).ledger}"]
        return invoke(["report", str(kind(name).folder), *given])

    return check


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "release.json").read_text())


def parts_of(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Manifest and mechanism file of each label."""
    for place in sorted((folder / "labels").iterdir()) if (folder / "labels").is_dir() else [folder]:
        yield manifest_of(place), json.loads((place / "mechanism.json").read_text())


@over(KINDS)
def test_every_kind_has_a_claim_in_the_registrys_format(
    claim: Any, kind: Any, invoke: Any, command: Any, report_on: Any, key_file: Path, name: str, snapshot: Any
) -> None:
    """The claim states budget, unit and parts; with the page, and all that is printed, it is kept."""
    made = kind(name)
    outcome, path = claim(name)
    assert outcome.ok().out == f"claim      {path}\n"
    assert outcome.err == ""
    assert format_problems(path) == []
    checked = invoke(["report", str(made.folder), f"--check_claim={path}", f"--ledger={made.ledger}"]).ok()
    assert checked.out == f"claim      {path} states this release\n"
    (label, *_) = made.case.labels
    page = report_on(made.folder / f"labels/{label}" if SEVERAL in name else made.folder, f"--ledger={made.ledger}")
    assert "Audit passed" in page.text
    assert not {"nan", "inf", "None"} & set(page.text.replace(",", " ").split())
    assert ("of a unit" in page.text) == ("units" in name)
    if name in WHOLE:
        dry = {**made.flags, "output": made.folder.with_name("dry"), "ledger": made.ledger.with_name("dry.jsonl")}
        printed = [invoke([*command("privatize", dry), "--dry_run"]).ok().out] if name != "public" else []
        printed += [made.outcome.out, *(line for line in made.outcome.err.splitlines() if "warn" in line)]
        places = (made.folder.parent, "FOLDER"), (Path(made.flags["input"]).parent, "LOGS"), (key_file, "KEY")
        snapshot(f"kinds/{name}", "\n".join([*printed, *page.shown, path.read_text()]), *places)

    deployment = yaml.safe_load(path.read_text())["deployment"]
    manifest, loss = manifest_of(made.folder), deployment["privacy_loss"]
    delta = manifest["delta"]
    assert loss["privacy_parameters"] == {"epsilon": manifest["epsilon"], **({"delta": delta} if delta else {})}
    assert deployment["dp_variant"]["variant_name"] == ("Approximate DP" if delta else "Pure DP")
    assert repr(manifest["certified_epsilon"]) in loss["privacy_parameters_details"]
    assert f"{manifest['adjacency'][1:]}." in loss["privacy_unit_details"]
    assert deployment["administrative"]["tier"] == 3
    parts = list(parts_of(made.folder))
    units = manifest.get("unit") and parts[0][0]["unit"]
    assert loss["number_of_privacy_units"] == (units["units"] if units else manifest["records"])
    if units:
        assert loss["privacy_unit"] == "All labels of one value of `user`"
    total = Fraction(0)
    composed = COMPOSED.findall(deployment["implementation"]["composition"])
    for (shown, most, bound), (part, mechanism) in zip(composed, parts, strict=True):
        code = f"`{part['label']}`"
        assert code in loss["privacy_unit_details"]
        assert code in deployment["dp_variant"]["data_domain"]
        drawn = part["class_center"]["fingerprint"] if "class_center" in part else mechanism["fingerprint"]
        assert drawn in deployment["implementation"]["additional_information"]
        assert part["input_digest"] in deployment["implementation"]["additional_information"]
        spent = sum(Fraction(float(epsilon)) for epsilon in shown.split(" + ")) * int(most or 1)
        # The bound is the sum, rounded up to a float, once for the center and once for all.
        assert 0 <= Fraction(float(bound)) - spent <= Fraction(1, 10**12)
        assert float(bound) == part["certified_epsilon"]
        total += spent
    assert total <= Fraction(manifest["epsilon"]) + Fraction(1, 10**12)


def test_no_snapshot_is_left_over() -> None:
    assert names("kinds") == set(map(file_name, WHOLE))


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, (*path, key))
    else:
        yield path


def changed(document: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any], Any]) -> dict[str, Any]:
    found = copy.deepcopy(document)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])
    return found


# What the deployer alone states.
FREE = {
    "name", "data_curators", "description", "intended_use", "data_product_region", "data_product_sector",
    "publication_date", "actors", "release_type", "data_source_type", "data_source_type_details", "justification",
    "evidence_sources", "status", "registry_authors",
}  # fmt: skip


@over([LINEAR, "units", SEVERAL, "center of classes"])
def test_a_claim_that_states_something_else_is_refused(claim: Any, kind: Any, tmp_path: Path, name: str) -> None:
    """Planted breaks: every statement of the release is changed in its first and its last word, or number."""
    outcome, path = claim(name)
    outcome.ok()
    document = yaml.safe_load(path.read_text())
    fields = [field for field in leaves(document) if len(field) > 1 and not FREE & set(field)]
    assert len(fields) >= 20
    claimed = read_claimed(str(kind(name).folder), str(kind(name).ledger))
    for field in fields:
        for change in (lambda value: f"x{value}" if isinstance(value, str) else value / 2, _first_line_changed):
            (tmp_path / "changed.yaml").write_text(yaml.safe_dump(changed(document, field, change)))
            problem = claim_problem(claimed, str(tmp_path / "changed.yaml"))
            assert str(problem).startswith(f"{'.'.join(field[1:3])} is not that of the release")


def _first_line_changed(value: Any) -> Any:
    """One character of the first line is another one; of a number, a small part."""
    if not isinstance(value, str):
        return value + 1
    line = value.partition("\n")[0]
    return value.replace(line, f"{line[:-1]}x", 1)


def test_a_claim_with_fields_too_few_or_too_many_is_refused(claim: Any, checked: Any) -> None:
    document = yaml.safe_load(claim(PLAIN)[1].read_text())
    for field in leaves(document):
        if len(field) != 3:
            continue
        assert f"{field[1]}.{field[2]} is missing" in checked(PLAIN, changed(document, field, lambda _: None)).error
    more = copy.deepcopy(document)
    more["deployment"]["privacy_loss"]["privacy_parameters"]["rho"] = 0.1
    assert "privacy_loss.privacy_parameters is not that of the release, {'epsilon': 2.0}" in checked(PLAIN, more).error
    more["deployment"]["privacy_loss"]["promise"] = "none"
    more["status"] = "Approved"
    error = checked(PLAIN, more).error
    assert error.endswith(": status is no field of a claim")
    del more["status"]
    assert "privacy_loss.promise is no field of a claim" in checked(PLAIN, more).error


def test_the_deployer_may_go_on_after_the_statements_of_the_release(claim: Any, checked: Any) -> None:
    document = yaml.safe_load(claim(PLAIN)[1].read_text())
    field = ("deployment", "implementation", "composition")
    assert checked(PLAIN, changed(document, field, lambda text: f"{text}\n- More.")).ok()
    assert checked(PLAIN, changed(document, field, lambda text: f"{text} More.")).code == 1
    unit = ("deployment", "privacy_loss", "privacy_unit")
    assert checked(PLAIN, changed(document, unit, lambda text: f"{text}\n- And all its records.")).code == 1


def test_a_field_that_is_there_twice_is_refused(claim: Any, kind: Any, invoke: Any) -> None:
    path = claim(PLAIN)[1]
    path.write_text(path.read_text().replace("      epsilon: 2.0\n", "      epsilon: 0.1\n      epsilon: 2.0\n"))
    outcome = invoke(["report", str(kind(PLAIN).folder), f"--check_claim={path}"])
    assert outcome.code == 2
    assert re.search(r"--check_claim \S*claim.yaml, line \d+: epsilon is there twice", outcome.error)


def test_a_claim_of_another_release_is_refused(claim: Any, kind: Any, invoke: Any) -> None:
    path = claim(PLAIN)[1]
    linear = kind(LINEAR)
    outcome = invoke(["report", str(linear.folder), f"--check_claim={path}", f"--ledger={linear.ledger}"])
    assert outcome.code == 1
    assert outcome.error.endswith("privacy_loss.privacy_parameters_details is not that of the release")


@pytest.mark.parametrize(
    ("file", "keys", "value", "problem"),
    [
        ("mechanism.json", ("certificate", "epsilon"), 0.1, "certificate.epsilon is below the true epsilon"),
        ("release.json", ("epsilon",), 0.5, "release.certified_epsilon is above release.epsilon"),
        ("release.json", ("adjacency",), "nothing is ever learnt", "release.adjacency is not that of"),
        ("release.json", ("expected_loss", "absolute"), 1e-9, "expected_loss.absolute is not that of the weights"),
    ],
)
def test_a_release_that_fails_has_no_claim(
    claim: Any, kind: Any, tmp_path: Path, file: str, keys: tuple[str, ...], value: Any, problem: str
) -> None:
    broken = Path(shutil.copytree(kind(PLAIN).folder, tmp_path / "broken"))
    document = json.loads((broken / file).read_text())
    text = json.dumps(changed(document, keys, lambda _: value), indent=2 if file == "release.json" else None)
    (broken / file).write_text(f"{text}\n")
    outcome, path = claim(broken, f"--ledger={kind(PLAIN).ledger}")
    assert outcome.code == 1
    assert "no claim is written" in outcome.error
    assert problem in outcome.error
    assert not path.exists()


def test_a_release_of_several_labels_that_fails_as_a_whole_has_no_claim(claim: Any, kind: Any, tmp_path: Path) -> None:
    """Each label passes, but together they spend more than the release states."""
    broken = Path(shutil.copytree(kind(SEVERAL).folder, tmp_path / "broken"))
    manifest = manifest_of(broken)
    manifest |= {key: manifest[key] / 2 for key in ("epsilon", "certified_epsilon")}
    (broken / "release.json").write_text(json.dumps(manifest))
    outcome, path = claim(broken, f"--ledger={kind(SEVERAL).ledger}")
    assert outcome.code == 1
    assert "no claim is written: release.epsilon is below the sum of those of the labels" in outcome.error
    assert not path.exists()


def test_a_mechanism_file_or_one_label_of_several_has_no_claim(claim: Any, kind: Any) -> None:
    assert "releases no labels: name an output folder" in claim(kind("applied").flags["mechanism_file"])[0].error
    outcome, _ = claim(kind(SEVERAL).folder / "labels" / "y", f"--ledger={kind(SEVERAL).ledger}")
    assert outcome.code == 1
    assert "is one of several labels: name the release" in outcome.error


def test_names_are_code_and_no_markup(damaged: Path, claim: Any) -> None:
    """A label and a filter whose names are HTML. Versions that are do not pass the audit."""
    ledger = damaged.parent / "labeldp_ledger.jsonl"
    outcome, path = claim(damaged, f"--ledger={ledger}", release_type="Many releases")
    outcome.ok()
    assert format_problems(path) == []
    texts = list(_texts(yaml.safe_load(path.read_text())))
    assert any("`<script>alert('y')</script>`" in text for text in texts)
    # Without code spans, which begin and end with equally many backticks.
    assert not any("<" in re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text) for text in texts)


def _texts(document: Any) -> Iterator[str]:
    for value in document.values() if isinstance(document, dict) else document:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            yield from _texts(value)


def test_missing_labels_are_protected_where_they_count_as_one(claim: Any) -> None:
    for name, protected in (("missing labels", True), (LINEAR, False)):
        variant = yaml.safe_load(claim(name)[1].read_text())["deployment"]["dp_variant"]
        assert ("Which of them had a label is protected" in variant["unprotected_quantities"]) == protected
        assert ("Which records have no usable label" in variant["unprotected_quantities"]) != protected
        assert ("A missing label counts as `3`." in variant["data_domain"]) == protected


def test_removed_records_are_units_of_the_claim(claim: Any, kind: Any, invoke: Any, tmp_path: Path) -> None:
    made, reduced = kind(LINEAR), tmp_path / "reduced"
    shard = next((made.folder / "data").iterdir()).name
    (tmp_path / "rows.txt").write_text(f"{shard},0\n{shard},5\n")
    invoke(["remove", str(made.folder), f"--rows={tmp_path / 'rows.txt'}", f"--output={reduced}"]).ok()
    outcome, path = claim(reduced, f"--ledger={made.ledger}")
    outcome.ok()
    deployment = yaml.safe_load(path.read_text())["deployment"]
    assert deployment["privacy_loss"]["number_of_privacy_units"] == manifest_of(made.folder)["records"]
    assert "2 records were removed from the release since" in deployment["implementation"]["post_processing"]


def test_signed_releases_have_claims_beside_them(damaged: Path, invoke: Any, tmp_path: Path) -> None:
    (damaged / "signature.json").write_text("{}")
    (tmp_path / "facts.yaml").write_text(yaml.safe_dump(FACTS | {"release_type": "Many releases"}))
    facts = f"--claim_facts={tmp_path / 'facts.yaml'}"
    ledger = f"--ledger={damaged.parent / 'labeldp_ledger.jsonl'}"
    invoke(["report", str(damaged), f"--claim={tmp_path / 'signed.yaml'}", facts, ledger]).ok()
    invoke(["report", str(damaged), f"--check_claim={tmp_path / 'signed.yaml'}", ledger]).ok()
    refused = invoke(["report", str(damaged), f"--claim={damaged / 'signed.yaml'}", facts, ledger])
    assert refused.code == 2
    assert "lies in a signed release" in refused.error
