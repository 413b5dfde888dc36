"""Claim file: what a release promises, in the form of the OpenDP registry of differential privacy deployments.

The form is that of opendp/deployments-registry-data, schemas/deployments-schema.yaml, at its most detailed tier. What a
release states follows from its audited documents and its ledger; all else are facts that the deployer states in a YAML
file. One that is missing, empty, unknown or not among the values that the registry takes is refused. A claim can be
compared with its release again, by anybody who has both.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..pipelines.errors import UsageError, did_you_mean, one_line
from ..pipelines.spec.yaml_file import yaml_mapping
from .claim_statements import LEDGER, Claimed, statements

_COMMENT = """\
# Made by labeldp report from a release and facts that its deployer states.
# labeldp report RELEASE --check_claim THIS_FILE compares it with the release.
"""
_FIELDS = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
_NAMES = [f"{group}.{name}" for group, names in _FIELDS.items() for name in names.split()]
_UNSAID = {"todo", "tbd", "tba", "?", "-", "n/a", "", "xxx", "fill in", "fill in correct value", "to be completed"}


def _text(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.sub(r"[.!\s]+$", "", text).casefold() in _UNSAID:
        raise ValueError("must say something, as text")
    # A literal block of YAML holds no other characters, nor spaces at the ends of lines.
    if not all(character.isprintable() or character == "\n" for character in text):
        raise ValueError("must not have tabs, or other characters that are not printable")
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _name(value: Any) -> str:
    if "\n" in (text := _text(value)):
        raise ValueError("must be one line")
    return text


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}{did_you_mean(str(value), choices)}")
        return value

    return read


def _date(value: Any) -> str:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
            return datetime.date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        pass
    raise ValueError(f"must be a date such as 2026-01-31, not {value!r}")


def _list_of(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list, each item after a dash")
        return [read(item) for item in value]

    return read_all


def _members(value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value or (names and {*value} != {*names}):
        raise ValueError(f"must have {' and '.join(names) or 'names, each with a value'}")
    return value


def _curator(value: Any) -> dict[str, str]:
    members = _members(value, "name", "type")
    kind = _one_of("Government", "Industry", "Nonprofit")(members["type"])
    return {"data_curator_name": _name(members["name"]), "data_curator_type": kind}


def _evidence(value: Any) -> dict[str, Any]:
    """Sources in the registry's form: by name, the type of evidence and one publication."""
    found = {}
    for name, source in _members(value).items():
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"{name!r} must be a name of letters, digits and underscores")
        kinds = [kind for kind in _members(source) if kind in _PUBLICATIONS]
        members = _members(source, "evidence_source_type", *kinds[:1] or ["a publication of BibTeX, such as misc"])
        fields = {_one_of(*_BIBTEX)(key): _text(text) for key, text in _members(members[kinds[0]]).items()}
        source_type = _one_of(*_EVIDENCE)(members["evidence_source_type"])
        found[name] = {"evidence_source_type": source_type, kinds[0]: fields}
    return found


_EVIDENCE = (
    "Peer-reviewed publication", "Formal publication by the deploying organization",
    "Authorized organizational attestation", "Other public source",
)  # fmt: skip
_PUBLICATIONS = (
    "article", "book", "booklet", "conference", "inbook", "incollection", "inproceedings", "manual", "mastersthesis",
    "misc", "phdthesis", "proceedings", "techreport", "unpublished",
)  # fmt: skip
_BIBTEX = (
    "address", "annote", "author", "booktitle", "chapter", "doi", "edition", "editor", "email", "howpublished",
    "institution", "issn", "isbn", "journal", "month", "note", "number", "organization", "pages", "publisher",
    "school", "type", "series", "title", "url", "volume", "year",
)  # fmt: skip
_READERS = {
    "text": _text, "name": _name, "names": _list_of(_name), "curators": _list_of(_curator), "date": _date,
    "evidence": _evidence,
}  # fmt: skip


class Fact(NamedTuple):
    """Fact of the deployer: its name, the field that it is, or continues after a lead, how it is read, what it is."""

    name: str
    field: str
    lead: str
    kind: str
    what: str


FACTS = [
    Fact(*map(str.strip, line.split("|")))
    for line in Path(__file__).with_name("claim_facts.txt").read_text("utf-8").splitlines()[1:]
]
"""Facts of all releases, in the order of their template."""


def facts_for(claimed: Claimed) -> list[Fact]:
    """Lists the facts that the deployer states; some are of releases that take something from elsewhere."""
    needed = {
        "center_origin": any((center := each.file.center) and center.linear is None for each in claimed.labels),
        "prior_origin": any(not each.file.parts for each in claimed.labels),
    }
    return [fact for fact in FACTS if needed.get(fact.name, True)]


def facts_template(claimed: Claimed) -> str:
    """Writes a file of facts to complete: a comment and an empty value for each."""
    head = "# Facts that the release does not know, for labeldp report --claim FILE --claim_facts THIS_FILE.\n"
    return head + "".join(
        f"\n# {fact.what}{'' if fact.kind in _READERS else f' One of {fact.kind}.'}\n{fact.name}:\n"
        for fact in facts_for(claimed)
    )


def claim_document(claimed: Claimed, path: str) -> dict[str, Any]:
    """Makes the document of a claim file: nested mappings of text, numbers and lists, as the registry orders them.

    `path` is the file of facts. Raises UsageError if one is missing, unknown or wrong, or contradicts the ledger.
    """
    flag, known = f"--claim_facts {path}", {fact.name: fact for fact in facts_for(claimed)}
    given = yaml_mapping("--claim_facts", path, "facts", "a fact")
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise UsageError(f"{flag}: {one_line(key)} is not for the deployer of this release to state{hint}")
    missing = [name for name in known if given.get(name) in ("", None) and name != "evidence"]
    if missing:
        raise UsageError(f"{flag}: fill in {', '.join(missing)}; --claim_template writes what each of them is")
    facts, fields = {}, statements(claimed)
    for fact in known.values():
        if given.get(fact.name) in ("", None):
            continue
        try:
            read: Callable[[Any], Any] = _READERS.get(fact.kind) or _one_of(*fact.kind.split(", "))
            value = facts[fact.name] = read(given[fact.name])
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
    if facts["release_type"] == "One release" and claimed.of_labels:
        more = f"{len(claimed.of_labels)} more of these labels, such as {one_line(claimed.of_labels[0].title)}"
        raise UsageError(f"{flag}: release_type is One release, but the ledger has {more}")
    # Name in the registry's addresses, as its own script makes it of name, publisher and year.
    parts = (facts["name"], facts["curators"][0]["data_curator_name"], facts["publication_date"][:4])
    slug = "-".join(re.sub(r"[\W_]+", "-", part.lower()).strip("-") for part in parts)
    deployment: dict[str, Any] = {group: {} for group in _FIELDS}
    for group, _, name in (field.partition(".") for field in _NAMES if field in fields):
        deployment[group][name] = fields[f"{group}.{name}"]
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
    groups = root.get("deployment")
    groups = groups if isinstance(groups, dict) else {}
    found = {
        f"{group}.{name}": value
        for group, members in groups.items()
        for name, value in (members if isinstance(members, dict) else {"": members}).items()
    }
    unknown = [name for name in [*root, *found] if name not in ("url_slug", "deployment", *_NAMES)]
    yield from (f"{one_line(name)} is no field of a claim" for name in unknown)
    stated = statements(claimed)
    for field in _NAMES:
        value, expected = found.get(field), stated.get(field)
        if not value and field != "administrative.evidence_sources":
            yield f"{field} is missing"
        elif field == "administrative.status" or (field == LEDGER and not claimed.runs):
            continue
        elif expected is not None and not _states(value, expected):
            brief = f", {expected!r}" if not str(expected).startswith("- ") else ""
            yield f"{field} is not that of the release{brief}"
        elif field == "basic.publication_date" and claimed.day is not None and str(value) < claimed.day:
            yield f"{field} is before {claimed.day}, the day of the release"


def _states(value: Any, stated: Any) -> bool:
    """Tells whether a field has what the release states: a list of points may go on after those of the release."""
    if isinstance(stated, str) and stated.startswith("- "):
        return isinstance(value, str) and f"{value.rstrip()}\n".startswith(f"{stated}\n")
    return value == _as_written(stated)


def _as_written(stated: Any) -> Any:
    """A value as `yaml_mapping` reads it from a claim: numbers are the text that `claim_text` writes."""
    import yaml

    if isinstance(stated, dict):
        return {key: _as_written(value) for key, value in stated.items()}
    return stated if isinstance(stated, str) else yaml.safe_dump(stated).splitlines()[0]
