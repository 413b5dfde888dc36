"""Claim file: what a release promises, in the form of the OpenDP registry of differential privacy deployments.

The form is that of opendp/deployments-registry-data, schemas/deployments-schema.yaml, at its most detailed tier. What a
release states follows from its audited documents and its ledger; all else is stated by the deployer (`claim_facts`).
A claim can be compared with its release again, by anybody who has both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..mechanisms.core.budget import decimal_value
from ..pipelines.errors import UsageError, one_line
from ..pipelines.spec.yaml_file import node_kind, node_text, yaml_entries
from .claim_facts import FLAG, ONE_RELEASE
from .claim_statements import statements
from .claimed_release import ChargedRelease, Claimed

TIER = 3
STATUS = "Draft"
_COMMENT = """\
# Made by labeldp report from a release and facts that its deployer states.
# labeldp report RELEASE --check_claim THIS_FILE compares it with the release.
"""

# Facts that continue what the release states, and those that are a field of their own.
_CONTINUED = {
    "features": "dp_variant.unprotected_quantities",
    "persons": "privacy_loss.privacy_unit_details",
    "trust": "deployment_model.trust_assumptions",
    "tuning": "implementation.preprocessing_and_hyperparameter_tuning",
    "prior_origin": "implementation.preprocessing_and_hyperparameter_tuning",
    "center_origin": "implementation.preprocessing_and_hyperparameter_tuning",
    "security": "implementation.mechanisms",
    "release_plans": "deployment_model.release_type_details",
    "contact": "implementation.additional_information",
}
_LED_BY = {
    "features": "Why they may be public", "persons": "Persons", "trust": "Why they are trusted", "tuning": "Choices",
    "prior_origin": "Origin of the public distribution", "center_origin": "Origin of the center's column",
    "security": "Access and secret key", "release_plans": "Plans", "contact": "Contact",
}  # fmt: skip
_OWN = {
    "name": "basic.name",
    "description": "basic.description",
    "intended_use": "basic.intended_use",
    "region": "basic.data_product_region",
    "sector": "basic.data_product_sector",
    "publication_date": "basic.publication_date",
    "curators": "basic.data_curators",
    "release_type": "deployment_model.release_type",
    "data_source": "deployment_model.data_source_type",
    "data_source_details": "deployment_model.data_source_type_details",
    "justification": "implementation.justification",
    "authors": "administrative.registry_authors",
    "evidence": "administrative.evidence_sources",
}
_ACTORS = "deployment_model.actors"
_LEDGER = "deployment_model.release_type_details"
_NUMBERS = ("privacy_loss.number_of_privacy_units", "administrative.tier")
_ORDER = {
    "basic": ("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
              "data_product_sector", "publication_date"),
    "dp_variant": ("variant_name", "data_domain", "unprotected_quantities"),
    "privacy_loss": ("privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters",
                     "privacy_parameters_details"),
    "deployment_model": ("model_name", "model_name_details", "trust_assumptions", "actors", "release_type",
                         "release_type_details", "data_source_type", "data_source_type_details", "access_type",
                         "access_type_details"),
    "implementation": ("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing",
                       "justification", "utility", "additional_information"),
    "administrative": ("evidence_sources", "status", "registry_authors", "tier"),
}  # fmt: skip


def claim_document(claimed: Claimed, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the document of a claim file.

    Args:
      claimed: The release.
      facts: Facts of the deployer, of `read_facts`.

    Returns:
      Nested mappings of text, numbers and lists, as the registry orders them.

    Raises:
      UsageError: If a fact contradicts the release or its ledger.
    """
    _check_facts(claimed.charged, facts)
    fields = _released(claimed) | {field: facts[fact] for fact, field in _OWN.items() if fact in facts}
    for fact, field in _CONTINUED.items():
        if fact in facts:
            fields[field] += f"\n- {_LED_BY[fact]}: {_indented(facts[fact])}"
    if "epsilon_cap" in facts:
        fields[_LEDGER] += f"\n- {_cap_line(facts)}"
    publishers = ", ".join(curator["data_curator_name"] for curator in facts["curators"])
    fields[_ACTORS] = f"- Labels party: {publishers}\n- Recipients: {_indented(facts['recipients'])}"
    deployment = {
        group: {name: fields[f"{group}.{name}"] for name in names if f"{group}.{name}" in fields}
        for group, names in _ORDER.items()
    }
    return {"url_slug": _slug(facts), "deployment": deployment}


def claim_text(document: Mapping[str, Any]) -> str:
    """Writes a claim as YAML, with the styles of scalars that the registry takes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    lines = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**9)
    return _COMMENT + lines


def claim_problems(claimed: Claimed, path: str) -> list[str]:
    """Compares a claim file with the release.

    Args:
      claimed: The release. Without a ledger, what a claim says of one is not compared.
      path: The claim file.

    Returns:
      A line for each field that does not state the release, is missing or unknown.

    Raises:
      UsageError: If the file cannot be read, or is not a mapping in YAML.
    """
    root = _plain_mapping(yaml_entries("--check_claim", path, "a claim", "a field of the registry"), path)
    return [*_shape_problems(root), *_statement_problems(claimed, _flat(root))]


def _released(claimed: Claimed) -> dict[str, Any]:
    """All that follows from release and ledger, by field."""
    fields = statements(claimed.release) | {"administrative.tier": TIER}
    return fields | {_LEDGER: _ledger_text(claimed), "administrative.status": STATUS}


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _slug(facts: Mapping[str, Any]) -> str:
    """Name in the registry's addresses, as its own script makes it of name, publisher and year."""
    parts = (facts["name"], facts["curators"][0]["data_curator_name"], facts["publication_date"][:4])
    return "-".join(re.sub(r"[\W_]+", "-", part.lower()).strip("-") for part in parts)


def _ledger_text(claimed: Claimed) -> str:
    charged = claimed.charged
    if charged is None:
        return "- No ledger was at hand: other releases of these labels are not counted in epsilon."
    runs, spent = len(charged.runs), charged.spent
    delta = f" and delta {float(spent.delta)!r}" if spent.delta else ""
    text = (
        f"- The ledger has {runs:,} {'run' if runs == 1 else 'runs'}. All distinct releases, this one among them, add "
        f"up to epsilon {float(spent.epsilon)!r}{delta} for {claimed.release.per}."
    )
    if charged.unbounded:
        text += (
            f"\n- Not in this sum are runs that were charged for records, or for other units: {charged.unbounded:,}."
        )
    return text


def _cap_line(facts: Mapping[str, Any]) -> str:
    window = facts.get("cap_window")
    within = "" if window is None else f" within any time of {window.text}"
    return f"The releases of the ledger are within a cap of epsilon {facts['epsilon_cap']!r}{within}."


def _check_facts(charged: ChargedRelease | None, facts: Mapping[str, Any]) -> None:
    """Compares facts with the ledger. Raises UsageError for one that contradicts it."""
    if charged is None:
        if "epsilon_cap" in facts:
            raise UsageError(f"{FLAG}: epsilon_cap needs a ledger to compare with: name it with --ledger")
        return
    if charged.day is not None and facts["publication_date"] < charged.day:
        raise UsageError(f"{FLAG}: publication_date is before {charged.day}, the day of the release in its ledger")
    if facts["release_type"] == ONE_RELEASE and charged.of_labels:
        raise UsageError(
            f"{FLAG}: release_type is {ONE_RELEASE}, but the ledger has {len(charged.of_labels)} more of these labels, "
            f"such as {one_line(charged.of_labels[0].title)}"
        )
    _check_cap(charged, facts)


def _check_cap(charged: ChargedRelease, facts: Mapping[str, Any]) -> None:
    cap = facts.get("epsilon_cap")
    if cap is None:
        return
    if charged.unbounded:
        raise UsageError(
            f"{FLAG}: epsilon_cap cannot be compared: the ledger has runs for records, or for other units, which bound "
            f"nothing for these units; their number is {charged.unbounded}"
        )
    spent = charged.spent_within(facts.get("cap_window")).epsilon
    if spent > decimal_value(cap):
        raise UsageError(f"{FLAG}: epsilon_cap {cap:g} is below {float(spent)!r}, which the ledger adds up to")


def _plain_mapping(entries: list[tuple[Any, Any]], path: str) -> dict[str, Any]:
    """Mappings, lists and scalars of nodes. A field that is there twice is refused: readers would differ."""
    made: dict[int, Any] = {}

    def mapping(pairs: list[tuple[Any, Any]], found: dict[str, Any]) -> dict[str, Any]:
        for key, node in pairs:
            name = node_text(key)
            if name is None or name in found:
                problem = "a name must be text" if name is None else f"{one_line(name)} is there twice"
                raise UsageError(f"--check_claim {path}, line {key.start_mark.line + 1}: {problem}")
            found[name] = plain(node)
        return found

    def plain(node: Any) -> Any:
        text = node_text(node)
        if text is not None:
            return _scalar(text, node_kind(node))
        # Anchors: each node is read once, however often it is named.
        if id(node) not in made:
            made[id(node)] = {} if node_kind(node) == "map" else []
            if node_kind(node) == "map":
                mapping(node.value, made[id(node)])
            else:
                made[id(node)] += [plain(item) for item in node.value]
        return made[id(node)]

    return mapping(entries, {})


def _scalar(text: str, kind: str) -> Any:
    """Text, a number, None for null, or the kind of another scalar, such as a date without quotes, in a tuple."""
    if kind == "null":
        return None
    if kind not in ("int", "float"):
        return text if kind == "str" else (kind,)
    try:
        return float(text)
    except ValueError:
        return text


def _flat(root: Mapping[str, Any]) -> dict[str, Any]:
    deployment = root.get("deployment")
    groups = deployment.items() if isinstance(deployment, dict) else ()
    return {
        f"{group}.{name}": value
        for group, members in groups
        if isinstance(members, dict)
        for name, value in members.items()
    }


def _shape_problems(root: Mapping[str, Any]) -> Iterator[str]:
    """Fields that a claim of the most detailed tier must have, and others that it must not."""
    fields = {f"{group}.{name}" for group, names in _ORDER.items() for name in names}
    found = _flat(root)
    yield from (f"{one_line(name)} is no field" for name in sorted({*root} - {"url_slug", "deployment"}))
    deployment = root.get("deployment")
    groups = deployment if isinstance(deployment, dict) else {}
    yield from (f"deployment.{one_line(name)} is no group of fields" for name in sorted({*groups} - {*_ORDER}))
    yield from (f"{one_line(field)} is no field of a claim" for field in found if field not in fields)
    for field in sorted(fields - {"administrative.evidence_sources"}):
        value = found.get(field)
        if value in (None, "", [], {}):
            yield f"{field} is missing"
        elif isinstance(value, tuple) or (isinstance(value, float) and field not in _NUMBERS):
            yield f"{field} is not text: put it in quotes"


def _statement_problems(claimed: Claimed, found: Mapping[str, Any]) -> Iterator[str]:
    for field, stated in _released(claimed).items():
        value = found.get(field)
        if value is None or field == "administrative.status" or (field == _LEDGER and claimed.charged is None):
            continue
        if not _states(value, stated):
            brief = f", {stated!r}" if not isinstance(stated, str) or not stated.startswith("- ") else ""
            yield f"{field} is not that of the release{brief}"
    day = None if claimed.charged is None else claimed.charged.day
    published = found.get("basic.publication_date")
    if day is not None and isinstance(published, str) and published < day:
        yield f"basic.publication_date is before {day}, the day of the release"


def _states(value: Any, stated: Any) -> bool:
    """Tells whether a field has what the release states: a list of points may go on after those of the release."""
    if isinstance(stated, str) and stated.startswith("- "):
        return isinstance(value, str) and f"{value.rstrip()}\n".startswith(f"{stated}\n")
    if isinstance(stated, str):
        return value == stated
    return type(value) is not str and value == stated
