"""Facts of a claim file that a release does not know: who deploys it, for what, whom they trust, and why.

They are stated in a YAML file of the deployer. A fact that is missing, empty, unknown or not among the values that the
registry of deployments takes is refused.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..mechanisms.core.budget import MAX_EPSILON
from ..pipelines.errors import UsageError, did_you_mean, one_line
from ..pipelines.ledger.spent_budget import Window
from ..pipelines.spec.yaml_file import node_kind, node_text, yaml_entries

FLAG = "--claim_facts"
ONE_RELEASE, MANY_RELEASES = "One release", "Many releases"
CURATOR_TYPES = ("Government", "Industry", "Nonprofit")
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
EVIDENCE_TYPES = (
    "Peer-reviewed publication",
    "Formal publication by the deploying organization",
    "Authorized organizational attestation",
    "Other public source",
)
PUBLICATIONS = (
    "article", "book", "booklet", "conference", "inbook", "incollection", "inproceedings", "manual", "mastersthesis",
    "misc", "phdthesis", "proceedings", "techreport", "unpublished",
)  # fmt: skip
PUBLICATION_FIELDS = (
    "address", "annote", "author", "booktitle", "chapter", "doi", "edition", "editor", "email", "howpublished",
    "institution", "issn", "isbn", "journal", "month", "note", "number", "organization", "pages", "publisher", "school",
    "type", "series", "title", "url", "volume", "year",
)  # fmt: skip
_UNSAID = {"todo", "tbd", "tba", "?", "-", "n/a", "...", "xxx", "fill in", "fill in correct value", "to be completed"}


@dataclass(frozen=True)
class Fact:
    """Fact that the deployer states.

    Attributes:
      name: Its key in the file.
      what: What to write, as a comment of the template.
      read: Reads the value from its node; raises ValueError, whose message follows the name.
      optional: Whether it may be left out.
      example: Lines below the key in the template; empty for a value in the line of the key.
    """

    name: str
    what: str
    read: Callable[[Any], Any]
    optional: bool = False
    example: tuple[str, ...] = ()


def read_facts(path: str, needed: Sequence[str] = ()) -> dict[str, Any]:
    """Reads the file of facts.

    Args:
      path: YAML file with a line for each fact.
      needed: Names of the facts of `OF_RELEASE` that the release needs, because it does not know them itself.

    Returns:
      Value by name, without the optional facts that the file leaves out.

    Raises:
      UsageError: If a fact is missing, unknown or wrong; the message names file, line and fact.
    """
    facts = {fact.name: fact for fact in facts_for(needed)}
    found: dict[str, Any] = {}
    for key, node in _unique(yaml_entries(FLAG, path, "facts", "a fact"), path):
        if key not in facts:
            raise UsageError(f"{_where(path, node)}: {one_line(key)} {_unknown(key, facts)}")
        if node_kind(node) == "null":
            continue
        try:
            found[key] = facts[key].read(node)
        except ValueError as error:
            raise UsageError(f"{_where(path, node)}: {key} {one_line(str(error))}") from None
    missing = [name for name, fact in facts.items() if name not in found and not fact.optional]
    if missing:
        raise UsageError(f"{FLAG} {path}: fill in {', '.join(missing)}; --claim_template writes what each of them is")
    if "cap_window" in found and "epsilon_cap" not in found:
        raise UsageError(f"{FLAG} {path}: cap_window needs epsilon_cap, the cap that holds in it")
    return found


def facts_for(needed: Sequence[str]) -> list[Fact]:
    """Lists the facts of a release: those of every release, and those of `OF_RELEASE` that are named."""
    return [*FACTS, *(fact for fact in OF_RELEASE if fact.name in needed)]


def facts_template(needed: Sequence[str] = ()) -> str:
    """Writes a file of facts to complete: a comment and an empty value for each."""
    lines = [f"# Facts that the release does not know, for labeldp report --claim FILE {FLAG} THIS_FILE."]
    for fact in facts_for(needed):
        optional = " Optional." if fact.optional else ""
        lines += ["", f"# {fact.what}{optional}", f"{fact.name}:", *(f"  # {line}" for line in fact.example)]
    return "\n".join([*lines, ""])


def _where(path: str, node: Any) -> str:
    return f"{FLAG} {path}, line {node.start_mark.line + 1}"


def _unique(entries: Sequence[tuple[Any, Any]], path: str) -> Iterator[tuple[str, Any]]:
    """Pairs of the text of a key and its value; a second value under one name is refused."""
    seen = set()
    for key, node in entries:
        name = node_text(key)
        if name is None:
            raise UsageError(f"{_where(path, key)}: the name of a fact must be text")
        if name in seen:
            raise UsageError(f"{_where(path, key)}: {one_line(name)} is there twice: give each fact once")
        seen.add(name)
        yield name, node


def _unknown(key: str, facts: dict[str, Fact]) -> str:
    if key in (fact.name for fact in OF_RELEASE):
        return "is not a fact of this release: leave it out"
    if key in FROM_RELEASE:
        return "is taken from the release: leave it out"
    return f"is no fact of a claim{did_you_mean(key, facts)}"


def _text(node: Any) -> str:
    text = (node_text(node) or "").strip()
    if not text or re.sub(r"[.!\s]+$", "", text).casefold() in _UNSAID or text.casefold() in _UNSAID:
        raise ValueError("must say something, as text")
    # A literal block of YAML holds no other characters, nor spaces at the ends of lines.
    if not all(character.isprintable() or character == "\n" for character in text):
        raise ValueError("must not have tabs, or other characters that are not printable")
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _name(node: Any) -> str:
    text = _text(node)
    if "\n" in text:
        raise ValueError("must be one line")
    return text


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(node: Any) -> str:
        text = _name(node)
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}{did_you_mean(text, choices)}")
        return text

    return read


def _date(node: Any) -> str:
    text = _name(node)
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise ValueError(f"must be a date such as 2026-01-31, not {text!r}")


def _cap(node: Any) -> float:
    text = _name(node)
    try:
        cap = float(text)
    except ValueError:
        cap = 0.0
    # Sums over a ledger may be larger than the epsilon of one release.
    if not 0 < cap <= 1000 * MAX_EPSILON:
        raise ValueError(f"must be a number above 0, not {text!r}")
    return cap


def _window(node: Any) -> Window:
    return Window.parse(_name(node))


def _names(node: Any) -> list[str]:
    if node_kind(node) != "seq" or not node.value:
        raise ValueError("must be a list of names, each after a dash")
    return [_name(item) for item in node.value]


def _members(node: Any, what: str) -> dict[str, Any]:
    if node_kind(node) != "map" or not node.value:
        raise ValueError(f"must have {what}")
    names = [node_text(key) or "" for key, _ in node.value]
    if len(set(names)) < len(names):
        raise ValueError(f"has a name twice: give each of {what} once")
    return dict(zip(names, (value for _, value in node.value), strict=True))


def _curators(node: Any) -> list[dict[str, str]]:
    if node_kind(node) != "seq" or not node.value:
        raise ValueError("must be a list of those who publish the release, each with name and type")
    found = []
    for item in node.value:
        members = _members(item, "a name and a type")
        if set(members) != {"name", "type"}:
            raise ValueError("must have exactly a name and a type for each of those who publish the release")
        kind = _one_of(*CURATOR_TYPES)(members["type"])
        found.append({"data_curator_name": _name(members["name"]), "data_curator_type": kind})
    return found


def _evidence(node: Any) -> dict[str, Any]:
    """Sources in the registry's form: by name, the type of evidence and one publication."""
    found = {}
    for name, source in _members(node, "a name for each source").items():
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"{name!r} must be a name of letters, digits and underscores")
        members = _members(source, "evidence_source_type and a publication")
        kinds = [key for key in members if key != "evidence_source_type"]
        if len(kinds) != 1 or len(members) != 2 or kinds[0] not in PUBLICATIONS:
            raise ValueError(f"{name} must have evidence_source_type and one of {', '.join(PUBLICATIONS)}")
        fields = _members(members[kinds[0]], "fields of BibTeX, such as title and url")
        for field in fields:
            if field not in PUBLICATION_FIELDS:
                raise ValueError(f"{name}: {field!r} is no field of BibTeX{did_you_mean(field, PUBLICATION_FIELDS)}")
        kind = _one_of(*EVIDENCE_TYPES)(members["evidence_source_type"])
        found[name] = {"evidence_source_type": kind, kinds[0]: {key: _text(value) for key, value in fields.items()}}
    return found


FACTS = (
    Fact("name", "Name of the dataset that is released.", _name),
    Fact(
        "curators", f"Who publishes it: name, and type, one of {', '.join(CURATOR_TYPES)}.", _curators,
        example=("- name:", "  type:"),
    ),
    Fact("contact", "Whom to ask about the release.", _text),
    Fact("description", "What the dataset is: records, features, labels.", _text),
    Fact("intended_use", "What its recipients use it for.", _text),
    Fact("region", "Region that the data describe, or whose law applies.", _text),
    Fact("sector", f"One of {', '.join(SECTORS)}.", _one_of(*SECTORS)),
    Fact("publication_date", "Day of the publication, as 2026-01-31; not before the day of the release.", _date),
    Fact("recipients", "Who receives the release, and what else they know of these people.", _text),
    Fact("trust", "Why the trusted parties are trusted: who runs the job, its workers and its storage.", _text),
    Fact(
        "persons", "What a record, or a unit, is in the world; how many of them, here and elsewhere, one person has.",
        _text,
    ),
    Fact("features", "Why the features may be public, and none of them follows from the label.", _text),
    Fact("data_source", "Static or Dynamic: whether further data come in over time.", _one_of("Static", "Dynamic")),
    Fact("data_source_details", "Where the data come from, over which time.", _text),
    Fact("release_type", f"{ONE_RELEASE} or {MANY_RELEASES} of these labels over time.",
        _one_of(ONE_RELEASE, MANY_RELEASES)),
    Fact("release_plans", "Planned further releases or uses of these labels; how their epsilons are limited.", _text),
    Fact(
        "tuning", "How epsilon, label domain, features and filter were chosen, and whether these data were looked at "
        "for it.", _text,
    ),
    Fact("security", "Who can read the true labels and the secret key, and when both are destroyed.", _text),
    Fact("justification", "Why this epsilon, this unit and this mechanism are right here; who decided it.", _text),
    Fact("authors", "Who wrote this claim.", _names, example=("-",)),
    Fact("epsilon_cap", "Cap on the epsilon of all releases in the ledger, which is compared with it.", _cap,
        optional=True),
    Fact("cap_window", "Time within which the cap holds, such as 30d.", _window, optional=True),
    Fact(
        "evidence", "Published sources, by name: evidence_source_type, and a publication with BibTeX fields.",
        _evidence, optional=True,
        example=("policy_2026:", "  evidence_source_type: Other public source", "  misc: {title: , url: }"),
    ),
)  # fmt: skip
"""Facts of every release, in the order of the template."""

OF_RELEASE = (
    Fact("center_origin", "Where the column of the center comes from, and that it has not seen these labels.", _text),
    Fact("prior_origin", "Where the public distribution of the labels comes from, that is not charged.", _text),
)
"""Facts of releases that take something from elsewhere."""

FROM_RELEASE = (
    "epsilon", "delta", "rho", "adjacency", "unit", "privacy_unit", "privacy_unit_details", "privacy_parameters",
    "number_of_privacy_units", "records", "variant_name", "data_domain", "unprotected_quantities", "data_product_type",
    "model_name", "access_type", "mechanism", "mechanisms", "composition", "post_processing", "utility", "tier",
    "status", "url_slug",
)  # fmt: skip
"""Names of what the release states, which nobody else may."""
