"""Facts of a claim file: what is missing, unknown, wrong or contradicts the release or its ledger is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from labeldp.pipelines.errors import UsageError
from labeldp.report.claim_file import FACTS, claim_document, read_claimed

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "docs/examples/claim_facts.yaml").read_text()
OF_RELEASE = {"center_origin", "prior_origin"}


@pytest.fixture
def written(outputs: Path, after_job: Any) -> Path:
    """Folder of the release `released` of a small log, with its ledger."""
    after_job(center="none")
    return outputs


@pytest.fixture
def claim(written: Path, tmp_path: Path, invoke: Any) -> Callable[..., Any]:
    """Function (text of the file of facts, flags) -> the outcome."""

    def make(text: str, *flags: str) -> Any:
        (tmp_path / "facts.yaml").write_text(text)
        given = [f"--claim={tmp_path / 'claim.yaml'}", f"--claim_facts={tmp_path / 'facts.yaml'}"]
        outcome = invoke(["report", str(written / "released"), *given, *flags])
        assert (tmp_path / "claim.yaml").exists() == (outcome.code == 0)
        return outcome

    return make


def facts(**changes: Any) -> str:
    """The example as YAML, with other values; None leaves a fact out."""
    found = yaml.safe_load(EXAMPLE) | changes
    return yaml.safe_dump({name: value for name, value in found.items() if value is not None})


def charge_again(ledger: Path, **changes: Any) -> None:
    """Appends the last run of a ledger with other values: a further release."""
    run = json.loads(ledger.read_text().splitlines()[-1])
    number = len(ledger.read_text().splitlines())
    for place, entry in enumerate(run["charges"]):
        entry["release"] = f"{number:016x}{place:016x}"
    run |= {"input_digest": f"{number:064x}", **changes}
    ledger.write_text(f"{ledger.read_text()}{json.dumps(run)}\n")


def test_the_example_is_complete(claim: Any) -> None:
    assert claim(EXAMPLE).ok()


def test_no_fact_is_guessed(written: Path, tmp_path: Path) -> None:
    path, claimed = tmp_path / "facts.yaml", read_claimed(str(written / "released"))
    for fact in {fact.name for fact in FACTS} - OF_RELEASE - {"evidence"}:
        for value in (None, "", "TODO", "TBD.", "n/a", "...", [], {}):
            path.write_text(facts(**{fact: value}))
            with pytest.raises(UsageError, match=rf"--claim_facts \S+facts.yaml: (fill in {fact};|{fact} must )"):
                claim_document(claimed, str(path))


def test_all_missing_facts_are_named_at_once(claim: Any) -> None:
    outcome = claim("name: A\nsector: Technology\n")
    assert outcome.code == 2
    assert (
        "fill in curators, description, intended_use, region, publication_date, features, persons, trust"
        in outcome.error
    )


WRONG = [
    ({"sector": "Tecnology"}, "sector must be one of Technology, .*; did you mean Technology"),
    ({"release_type": "Once"}, "release_type must be one of One release, Many releases, not 'Once'"),
    ({"data_source": "static"}, "data_source must be one of Static, Dynamic"),
    ({"publication_date": "2030-02-30"}, "publication_date must be a date such as 2026-01-31, not '2030-02-30'"),
    ({"publication_date": "31.1.2030"}, "publication_date must be a date"),
    ({"curators": "Example Shop"}, "curators must be a list"),
    ({"curators": [{"name": "A"}]}, "curators must have name and type"),
    ({"curators": [{"name": "A", "type": "Company"}]}, "curators must be one of Government, Industry, Nonprofit"),
    ({"authors": "A"}, "authors must be a list"),
    ({"authors": []}, "authors must be a list"),
    ({"name": "two\nlines"}, "name must be one line"),
    ({"name": ["a"]}, "name must say something, as text"),
    ({"contact": "a\x07b"}, "contact must not have tabs, or other"),
    ({"epsilon": 0.1}, "epsilon is not for the deployer of this release to state"),
    ({"privacy_unit": "person"}, "privacy_unit is not for the deployer"),
    ({"unprotected_quantities": "none"}, "unprotected_quantities is not for the deployer"),
    ({"contct": "a"}, "contct is not for the deployer of this release to state; did you mean contact"),
    ({"center_origin": "a model"}, "center_origin is not for the deployer of this release"),
    ({"prior_origin": "a table"}, "prior_origin is not for the deployer of this release"),
    ({"evidence": "a policy"}, "evidence must have names, each with a value"),
]  # fmt: skip


def test_wrong_facts_are_refused_by_name(written: Path, tmp_path: Path) -> None:
    path, claimed = tmp_path / "facts.yaml", read_claimed(str(written / "released"))
    for changes, problem in WRONG:
        path.write_text(facts(**changes))
        with pytest.raises(UsageError, match=rf"--claim_facts \S+facts.yaml: {problem}"):
            claim_document(claimed, str(path))


# Of epsilon 1, the randomizer that the draw of the histogram leads to spends a little less.
BOTH = r"(1\.99\d*|2\.0)\b"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: A\nname: B\n", "line 2: name is there twice: give it once"),
        ("- name\n", "must have lines of NAME: VALUE, where NAME is a fact"),
        ("name: [\n", "not valid YAML"),
        ("? [a]\n: b\n", "line 1: a name must be text"),
        ("name: !!python/object:os.system a\n", "fill in"),
    ],
)
def test_files_that_are_no_facts(claim: Any, text: str, problem: str) -> None:
    outcome = claim(text)
    assert outcome.code == 2
    assert problem in outcome.error


def test_a_day_before_that_of_the_release_is_refused(claim: Any, written: Path) -> None:
    day = json.loads((written / "labeldp_ledger.jsonl").read_text())["time"][:10]
    outcome = claim(facts(publication_date="2001-01-31"))
    assert outcome.code == 2
    assert f"publication_date is before {day}, the day of the release in its ledger" in outcome.error
    claim(facts(publication_date=day)).ok()


@pytest.mark.parametrize("command", ["privatize", "apply"])
def test_one_release_is_refused_if_the_ledger_has_more_of_these_labels(claim: Any, written: Path, command: str) -> None:
    charge_again(written / "labeldp_ledger.jsonl", command=command)
    outcome = claim(facts())
    assert outcome.code == 2
    assert "release_type is One release, but the ledger has 1 more of these labels, such as" in outcome.error
    claim(facts(release_type="Many releases")).ok()


@pytest.mark.parametrize("changes", [{"label": "other"}, {"command": "fit"}])
def test_runs_of_other_labels_or_without_labels_are_none_of_these(
    claim: Any, written: Path, tmp_path: Path, changes: dict[str, str]
) -> None:
    charge_again(written / "labeldp_ledger.jsonl", **changes)
    claim(facts()).ok()
    text = (tmp_path / "claim.yaml").read_text()
    assert re.search(
        f"The ledger has 2 runs. All distinct releases, this one among them, add up to epsilon {BOTH}", text
    )


def test_without_a_ledger_the_claim_says_so(claim: Any, written: Path, tmp_path: Path) -> None:
    (written / "labeldp_ledger.jsonl").unlink()
    claim(facts()).ok()
    assert "No ledger was at hand" in (tmp_path / "claim.yaml").read_text()


def test_a_ledger_without_the_release_is_refused(claim: Any, written: Path) -> None:
    ledger = written / "labeldp_ledger.jsonl"
    charge_again(ledger)
    whole = ledger.read_text()
    ledger.write_text(whole.splitlines()[-1] + "\n")
    outcome = claim(facts())
    assert outcome.code == 1
    assert "has no charge of it: name the one that was charged with --ledger" in outcome.error
    run = json.loads(whole.splitlines()[0])
    run["charges"][-1]["epsilon"] /= 2
    ledger.write_text(json.dumps(run) + "\n")
    outcome = claim(facts())
    assert outcome.code == 1
    assert "adds up to less than the release spent" in outcome.error


def test_a_ledger_that_grew_is_seen_by_a_check(claim: Any, written: Path, tmp_path: Path, invoke: Any) -> None:
    claim(facts()).ok()
    check = ["report", str(written / "released"), f"--check_claim={tmp_path / 'claim.yaml'}"]
    invoke(check).ok()
    charge_again(written / "labeldp_ledger.jsonl")
    outcome = invoke(check)
    assert outcome.code == 1
    assert outcome.error.endswith("deployment_model.release_type_details is not that of the release")
    (written / "labeldp_ledger.jsonl").unlink()
    assert "was not compared, because there is no ledger" in invoke(check).ok().out


def test_runs_of_records_are_not_in_the_sum_for_units(
    claim: Any, job: Any, written: Path, tmp_path: Path, invoke: Any
) -> None:
    flags = {"unit_column": "f", "max_records_per_unit": 1, "csv_types": "f=int64", "center": "none"}
    invoke(job(**flags, output=written / "units")).ok()
    (tmp_path / "facts.yaml").write_text(facts(release_type="Many releases"))
    given = [f"--claim={tmp_path / 'claim.yaml'}", f"--claim_facts={tmp_path / 'facts.yaml'}"]
    invoke(["report", str(written / "units"), *given]).ok()
    text = (tmp_path / "claim.yaml").read_text()
    assert "The ledger has 2 runs. All distinct releases, this one among them, add up to epsilon 0.99" in text
    assert "Not in this sum are runs that were charged for records, or for other units: 1." in text


def test_the_template_has_every_fact_and_is_refused_until_it_is_filled_in(
    written: Path, tmp_path: Path, invoke: Any, claim: Any
) -> None:
    template = tmp_path / "template.yaml"
    outcome = invoke(["report", str(written / "released"), f"--claim_template={template}"]).ok()
    assert outcome.out == f"template   {template}: fill it in, for --claim_facts\n"
    assert list(yaml.safe_load(template.read_text())) == [fact.name for fact in FACTS if fact.name not in OF_RELEASE]
    assert "fill in name, curators" in claim(template.read_text()).error


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--claim=claim.yaml"], "--claim needs --claim_facts"),
        (["--claim_facts=facts.yaml"], "--claim_facts needs --claim"),
        (["--claim=claim.yaml", "--claim_facts=nowhere.yaml"], "--claim_facts nowhere.yaml cannot be read: No such"),
        (["--claim=Claim.yaml", "--claim_facts=f"], "the registry takes names of lower-case letters, digits and _"),
        (["--claim=claim.json", "--claim_facts=f"], "that end in .yaml"),
        (["--claim=no/claim.yaml", "--claim_facts=f"], "--claim no/claim.yaml lies in a folder that does not exist"),
        (["--claim_template=labeldp_ledger.jsonl"], "--claim_template labeldp_ledger.jsonl exists: name another file"),
        (["--claim_template="], "--claim_template is empty: name a file"),
        (["--claim_template=t.yaml", "--check_claim=c.yaml"], "--claim_template and --check_claim: give one of them"),
        (["--check_claim=nowhere.yaml"], "--check_claim nowhere.yaml cannot be read: No such file"),
        (["--check_claim=c.yaml", "--output=page.html"], "--output is for the page"),
        (["--check_claim=c.yaml", "--party=us"], "--party is for the page"),
        (["--check_claim=c.yaml", "--ledger=nowhere.jsonl"], "--ledger nowhere.jsonl is not a file"),
    ],
)
def test_bad_usage(
    written: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(written)
    outcome = invoke(["report", "released", *arguments])
    assert outcome.code == 2
    assert problem in outcome.error
    assert {path.name for path in written.iterdir()} == {"released", "labeldp_ledger.jsonl"}
