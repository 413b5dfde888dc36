"""Claim file: what a release promises, in the form of the OpenDP registry of differential privacy deployments.

The form is that of opendp/deployments-registry-data, schemas/deployments-schema.yaml, at its most detailed tier;
claim_form.txt has its fields. What a release states follows from its audited documents and its ledger; all else are
facts that the deployer states in a YAML file. A claim can be compared with its release again, by anybody who has both.

Texts are markdown, as the registry shows them. Names that a user or a file chose are code spans, so that none of them
is read as markup.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from labeldp import InputError, UsageError

from ..audit.audit_release import audit_path
from ..mechanisms.core.budget import round_up
from ..mechanisms.core.integer_weights import BITS
from ..pipelines.errors import did_you_mean, one_line
from ..pipelines.ledger.charged_runs import ChargedRun, spent_by, unbounded_runs
from ..pipelines.ledger.spent_budget import total
from ..pipelines.publish.released import read_labels
from ..pipelines.spec.yaml_file import yaml_mapping
from .number_text import upper_bound
from .report_input import ReportInput, read_report_input

_COMMENT = """\
# Made by labeldp report from a release and facts that its deployer states.
# labeldp report RELEASE --check_claim THIS_FILE compares it with the release.
"""
_FORM = {
    field: re.findall(r"^([=*?-]) (?:\((\w+)\) )?(.*)$", lines, re.MULTILINE)
    for field, lines in re.findall(
        r"^\[(\S+)\]\s((?:[=*?-] .*\n)*)", Path(__file__).with_name("claim_form.txt").read_text("utf-8"), re.MULTILINE
    )
}
"""Lines by field, each with its mark, the value without which it is left out, and its text."""
_LEDGER = "deployment_model.release_type_details"
_UNSAID = {"todo", "tbd", "tba", "?", "-", "n/a", "", "xxx", "fill in", "fill in correct value", "to be completed"}
_MOST_CLASSES, _MOST_FEATURES, _MOST_NAME = 20, 60, 200
# Above, the factor e^epsilon says no more than that there is no bound.
_MOST_ODDS = 30
# Relative; a ledger has decimals, of which sums differ from those of floats in their last digits.
_CLOSE = Fraction(1, 10**9)


class Fact(NamedTuple):
    """Fact of the deployer: the field that it is, or continues after a lead, how it is read, what it is.

    Without `needed`, a value of a label, it is asked for of every release.
    """

    name: str
    lead: str
    kind: str
    what: str
    field: str
    needed: str


FACTS = [
    Fact(*map(str.strip, text.split("|")), field=field, needed=needed)
    for field, lines in _FORM.items()
    for mark, needed, text in lines
    if mark == "?"
]


@dataclass(frozen=True)
class Claimed:
    """Release that a claim is about, which passed the audit: values of its statements, as a whole and of each label.

    Of its ledger it has the other releases of the same labels, and the day of the last run that made it.
    """

    whole: Mapping[str, Any]
    labels: Sequence[Mapping[str, Any]]
    others: Sequence[ChargedRun]
    day: str | None

    @property
    def facts(self) -> list[Fact]:
        """Facts that its deployer states; some are of releases that take something from elsewhere."""
        return [fact for fact in FACTS if not fact.needed or any(label[fact.needed] for label in self.labels)]


def read_claimed(path: str, ledger: str | None = None, name: str | None = None) -> Claimed:
    """Audits and reads the release that a claim is about: an output folder, or its release.json, on this machine.

    `ledger` is the path or URL of the ledger that was charged, by default the file beside the release; `name` is the
    name of the release in messages, by default the path. Raises InputError if the release fails the audit or
    contradicts itself, or the ledger does not have it.
    """
    name, audit = name or path, audit_path(path)
    if audit.problems:
        raise InputError(f"{name} fails the audit; no claim is written: {'; '.join(audit.problems)}")
    if audit.total_epsilon is None:
        raise InputError(f"{name} is a mechanism file, which releases no labels: name an output folder")
    budget, folders = read_labels(path)
    parts = [read_report_input(folder, ledger, name, "claim") for folder in folders.values()]
    if parts[0].released.above is not None and len(parts) == 1:
        raise InputError(f"{name} is one of several labels: name the release, whose epsilon holds for all of them")
    labels, runs = [_of_label(part) for part in parts], [ChargedRun.from_dict(dict(run)) for run in parts[0].ledger]
    made = {"input_digest": {label["manifest"].input_digest for label in labels},
            "mechanism_fingerprint": {part.released.mechanism.drawing.fingerprint for part in parts}}  # fmt: skip
    days, others = [], []
    for run, charged in zip(parts[0].ledger, runs, strict=True):
        if all({*str(run.get(key, "")).split(",")} == values for key, values in made.items()):
            days.append(str(run.get("time", ""))[:10])
        elif {label["manifest"].label for label in labels} & {*str(run.get("label", "")).split(",")}:
            others += [charged] if run.get("command") not in ("fit", "domain") else []
    whole = _of_release(labels, budget, runs)
    if runs and not days:
        raise InputError(f"the ledger of {name} has no charge of it: name the one that was charged with --ledger")
    if runs and whole["sum"].epsilon < Fraction(budget["certified_epsilon"]) * (1 - _CLOSE):
        raise InputError(f"the ledger of {name} adds up to less than the release spent: restore it from a backup")
    return Claimed(whole, labels, others, days[-1] if days else None)


def _of_release(
    labels: Sequence[Mapping[str, Any]], budget: Mapping[str, Any], runs: Sequence[ChargedRun]
) -> dict[str, Any]:
    """Values of statements on the release; `budget` is its manifest as a whole."""
    manifest, unit, delta = labels[0]["manifest"], labels[0]["unit"], budget.get("delta")
    missing, column = manifest.missing, None if unit is None else unit.column
    per = "one record" if unit is None else f"one value of {_code(unit.column)}"
    spent = total(spent_by(runs, runs, column).values())
    without = f"Which records have no usable label: {manifest.records_without_label:,} were left out for that"
    return {
        "variant": "Approximate DP" if delta else "Pure DP",
        "fixed": f"Features{', and which records have a label,' if missing is None else ''} are fixed",
        "missing": missing if missing is None else _code(missing if isinstance(missing, str) else f"{missing:g}"),
        "columns": "" if manifest.features is None else f", {manifest.features:,} columns",
        # Removed ones included.
        "records": manifest.records + manifest.removed,
        "removed": manifest.removed,
        "identity": _code(manifest.identity),
        "unlabelled": without if missing is None else "Which of them had a label is protected as the label is",
        "where": manifest.where and _code(manifest.where),
        "left_out": _codes(manifest.left_out, _MOST_FEATURES),
        "unit": unit,
        "per": per,
        "whose": f"Label{'s' * (len(labels) > 1)} of one record" if unit is None else f"All labels of {per}",
        "adjacency": budget["adjacency"][:1].upper() + budget["adjacency"][1:],
        "labels": ", ".join(label["name"] for label in labels),
        "several": len(labels) > 1,
        "parameters": {key: budget[key] for key in (("epsilon", "delta") if delta else ("epsilon",))},
        "certified": _spent(budget["certified_epsilon"], delta and budget["certified_delta"]),
        "of_record": round_up(sum((Fraction(part) for label in labels for part in label["epsilons"]), Fraction(0))),
        "odds": budget["epsilon"] <= _MOST_ODDS and upper_bound(math.exp(budget["epsilon"])),
        "rare": ", except with a probability of the order of delta" if delta else "",
        "no_ledger": not runs,
        "runs": runs and f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}",
        "sum": spent,
        "spent": _spent(float(spent.epsilon), float(spent.delta)),
        "unbounded": len(unbounded_runs(runs, runs, column)),
        "versions": ", ".join(f"{_code(name)} {_code(version)}" for name, version in manifest.versions.items()),
        "bits": BITS,
    }


def _of_label(part: ReportInput) -> dict[str, Any]:
    """Values of statements on a label; `part` is the input of its report."""
    released, audit = part.released, part.audit
    manifest, file, unit = released.stated, released.mechanism, released.unit
    name, classes, drawing, solved = _code(manifest.label), file.classes, file.drawing, file.drawing.solved
    made, residuals = drawing.made, drawing.whole is not None
    each, most = ("", 1) if unit is None else (" for each record", unit.max_records)
    stated = manifest.expected_loss
    epsilons = (file.center_epsilon, file.prior_epsilon, audit.certified_epsilon)
    times = f", times the {most:,} records of a unit" if most > 1 else ""
    noised = (f"{name}: {part.noise} on {part.what} (epsilon {part.epsilon!r}{each})." for part in drawing.parts)
    # Other names in a manifest are those of anybody, and no contradiction of it would be found.
    losses = (f"{loss} {stated[loss]!r}" for loss in released.losses if stated.get(loss) is not None)
    return {
        "name": name,
        "manifest": manifest,
        "unit": unit,
        "epsilons": epsilons,
        "numbers": classes is None,
        "classes": classes and f"{len(classes):,} classes, {_codes(classes.values, _MOST_CLASSES)}",
        "other": classes and _code(classes.values[classes.other]),
        "column": drawing.given_column and _code(drawing.given_column),
        "public_prior": not drawing.parts,
        "nearest": "to the nearest" if drawing.rounding == "nearest" else "at random to one",
        "model": made and (_codes(made.map.columns, _MOST_FEATURES) or "none"),
        "chosen": solved is not None and solved.choice is not None,
        "declared": file.declared and file.declared.labels,
        "parts": "\n- ".join(noised),
        "drawn": not solved and _code(str(drawing.column)),
        "replaced": solved and ("residual" if residuals else "label"),
        "randomizer": solved,
        "table": solved and f"{len(solved.labels):,} inputs to {len(solved.outputs):,} outputs",
        "certified": _spent(audit.certified_epsilon, audit.certified_delta),
        "each": each,
        "sum": " + ".join(repr(epsilon) for epsilon in epsilons if epsilon) + times,
        "center": residuals and _code(str(drawing.column)),
        "solved": not residuals and file.prior_epsilon,
        "verdict": released.verdict(),
        "losses": ", ".join(losses),
        "debiasing": released.debiasing,
        "warnings": "\n- ".join(f"{name}: warning: {warning.text}." for warning in released.warnings()),
        "fingerprint": _code(drawing.fingerprint),
        "digest": _code(manifest.input_digest),
    }


def _spent(epsilon: float, delta: float | None) -> str:
    return f"epsilon {epsilon!r} and delta {delta!r}" if delta else f"epsilon {epsilon!r}"


def _code(name: str) -> str:
    """Code span of markdown with a name that anybody may have chosen."""
    text = one_line(name)
    text = text if len(text) <= _MOST_NAME else text[: _MOST_NAME - 3] + "..."
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _codes(names: Sequence[str], most: int) -> str:
    return ", ".join(map(_code, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _statements(claimed: Claimed) -> dict[str, Any]:
    """States a release: value by field of the form. A list of points may be continued by the deployer."""
    whole = claimed.whole
    stated: dict[str, Any] = {}
    for field, form in _FORM.items():
        texts = [
            ("" if mark == "=" else "- ") + text.format_map(values)
            for mark, lines in groupby((line for line in form if line[0] != "?"), lambda line: line[0])
            for same in [list(lines)]
            for values in (claimed.labels if mark == "*" else [whole])
            for _, needed, text in same
            if not needed or values[needed]
        ]
        if texts:
            stated[field] = "\n".join(texts)
    units = whole["records"] if whole["unit"] is None else whole["unit"].units
    stated |= {"privacy_loss.number_of_privacy_units": units, "privacy_loss.privacy_parameters": whole["parameters"]}
    return stated | {"administrative.tier": 3}


def facts_template(claimed: Claimed) -> str:
    """Writes a file of facts to complete: a comment and an empty value for each."""
    head = "# Facts that the release does not know, for labeldp report --claim FILE --claim_facts THIS_FILE.\n"
    return head + "".join(
        f"\n# {fact.what}{f' One of {fact.kind}.' if ', ' in fact.kind else ''}\n{fact.name}:\n"
        for fact in claimed.facts
    )


def _read(kind: str, value: Any) -> Any:
    """Reads a fact of a kind, or one that is one of several texts. Raises ValueError if it is none."""
    if kind == "sources":
        if not isinstance(value, dict):
            raise ValueError("must have names, each with a value")
    elif kind in ("names", "curators"):
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list, each item after a dash")
        return [_read(kind.removesuffix("s"), item) for item in value]
    elif kind == "curator":
        if not isinstance(value, dict) or {*value} != {"name", "type"}:
            raise ValueError("must have name and type")
        curator_type = _read("Government, Industry, Nonprofit", value["type"])
        return {"data_curator_name": _read("name", value["name"]), "data_curator_type": curator_type}
    elif kind == "date":
        try:
            return datetime.datetime.strptime(value, "%Y-%m-%d").date().isoformat()
        except (TypeError, ValueError):
            raise ValueError(f"must be a date such as 2026-01-31, not {value!r}") from None
    elif kind in ("text", "name"):
        text = value.strip() if isinstance(value, str) else ""
        if re.sub(r"[.!\s]+$", "", text).casefold() in _UNSAID:
            raise ValueError("must say something, as text")
        # A literal block of YAML holds no other characters, nor spaces at the ends of lines.
        if not all(character.isprintable() or character == "\n" for character in text):
            raise ValueError("must not have tabs, or other characters that are not printable")
        if kind == "name" and "\n" in text:
            raise ValueError("must be one line")
        return "\n".join(line.rstrip() for line in text.split("\n"))
    elif value not in (choices := kind.split(", ")):
        raise ValueError(f"must be one of {kind}, not {value!r}{did_you_mean(str(value), choices)}")
    return value


def claim_document(claimed: Claimed, path: str) -> dict[str, Any]:
    """Makes the document of a claim file: nested mappings of text, numbers and lists, as the registry orders them.

    `path` is the file of facts. Raises UsageError if one is missing, unknown or wrong, or contradicts the ledger.
    """
    flag, known = f"--claim_facts {path}", {fact.name: fact for fact in claimed.facts}
    given = {name: None if value == "" else value for name, value in
             yaml_mapping("--claim_facts", path, "facts", "a fact").items()}  # fmt: skip
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise UsageError(f"{flag}: {one_line(key)} is not for the deployer of this release to state{hint}")
    missing = [name for name in known if given.get(name) is None and name != "evidence"]
    if missing:
        raise UsageError(f"{flag}: fill in {', '.join(missing)}; --claim_template writes what each of them is")
    facts, fields = {}, _statements(claimed)
    for fact in (fact for fact in known.values() if given.get(fact.name) is not None):
        try:
            value = facts[fact.name] = _read(fact.kind, given[fact.name])
        except ValueError as error:
            raise UsageError(f"{flag}: {fact.name} {one_line(str(error))}") from None
        if fact.name == "curators":
            publishers = ", ".join(curator["data_curator_name"] for curator in value)
            fields["deployment_model.actors"] = f"- Labels party: {publishers}"
        if fact.lead:
            value = "\n- ".join([fields[fact.field], f"{fact.lead}: {value}".replace("\n", "\n  ")])
        fields[fact.field] = value
    if claimed.day is not None and facts["publication_date"] < claimed.day:
        raise UsageError(f"{flag}: publication_date is before {claimed.day}, the day of the release in its ledger")
    if facts["release_type"] == "One release" and claimed.others:
        more = f"{len(claimed.others)} more of these labels, such as {one_line(claimed.others[0].title)}"
        raise UsageError(f"{flag}: release_type is One release, but the ledger has {more}")
    # Name in the registry's addresses, as its own script makes it of name, publisher and year.
    parts = (facts["name"], facts["curators"][0]["data_curator_name"], facts["publication_date"][:4])
    slug = "-".join(re.sub(r"[\W_]+", "-", part.lower()).strip("-") for part in parts)
    deployment: dict[str, Any] = {}
    for group, _, name in (field.partition(".") for field in _FORM if field in fields):
        deployment.setdefault(group, {})[name] = fields[f"{group}.{name}"]
    return {"url_slug": slug, "deployment": deployment}


def claim_text(document: Mapping[str, Any]) -> str:
    """Writes a claim as YAML, with the styles of scalars that the registry takes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return _COMMENT + yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**9)


def claim_problem(claimed: Claimed, path: str) -> str | None:
    """Compares a claim file with the release: the first field that does not state it, is missing or unknown, or None.

    Without a ledger, what a claim says of one is not compared. Raises UsageError if the file is not a YAML mapping.
    """
    root = yaml_mapping("--check_claim", path, "a claim", "a field of the registry")
    return next(_problems(claimed, root), None)


def _problems(claimed: Claimed, root: Mapping[str, Any]) -> Iterator[str]:
    import yaml

    groups = root.get("deployment")
    found = {
        f"{group}.{name}": value
        for group, members in (groups if isinstance(groups, dict) else {}).items()
        for name, value in (members if isinstance(members, dict) else {"": members}).items()
    }
    unknown = [name for name in [*root, *found] if name not in ("url_slug", "deployment", *_FORM)]
    yield from (f"{one_line(name)} is no field of a claim" for name in unknown)
    stated = _statements(claimed)
    for field in _FORM:
        value, expected = found.get(field), stated.get(field)
        # Written and read as text, like the claim. A list of points may go on after those of the release.
        again = yaml.load(yaml.safe_dump(expected), Loader=yaml.BaseLoader)
        points = isinstance(expected, str) and expected.startswith("- ")
        same = f"{str(value).rstrip()}\n".startswith(f"{again}\n") if points else value == again
        if not value and field != "administrative.evidence_sources":
            yield f"{field} is missing"
        elif field == "administrative.status" or (field == _LEDGER and not claimed.whole["runs"]):
            continue
        elif expected is not None and not same:
            yield f"{field} is not that of the release{'' if points else f', {expected!r}'}"
        elif field == "basic.publication_date" and claimed.day is not None and str(value) < claimed.day:
            yield f"{field} is before {claimed.day}, the day of the release"
