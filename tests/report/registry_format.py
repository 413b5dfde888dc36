"""Format of the OpenDP registry of differential privacy deployments, as rules that claim files are checked against.

Source: github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml, scripts/check.py and
tests/good_deployments/template.yaml, as of 2026. The names of fields and values are theirs; descriptions are left out.
Fields that the schema leaves optional are required here: a record of tier 3 has all of them.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

TEXT = {"type": "string", "minLength": 1}


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def group(fields: dict[str, Any], *optional: str) -> dict[str, Any]:
    """An object with exactly these fields, of which some may be left out."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "additionalProperties": False, "properties": fields, "required": required}


CURATOR = group({"data_curator_name": TEXT, "data_curator_type": one_of("Government", "Industry", "Nonprofit")})
NUMBERS = ("chapter", "edition", "issn", "isbn", "month", "number", "pages", "volume", "year")
WORDS = (
    "address", "annote", "author", "booktitle", "doi", "editor", "email", "howpublished", "institution", "journal",
    "note", "organization", "publisher", "school", "type", "series", "title", "url",
)  # fmt: skip
BIBTEX = {
    "type": "object",
    "additionalProperties": False,
    "properties": dict.fromkeys(WORDS, TEXT) | {name: {"type": ["string", "number"]} for name in NUMBERS},
}
PUBLICATIONS = (
    "article", "book", "booklet", "conference", "inbook", "incollection", "inproceedings", "manual", "mastersthesis",
    "misc", "phdthesis", "proceedings", "techreport", "unpublished",
)  # fmt: skip
EVIDENCE_TYPE = one_of(
    "Peer-reviewed publication",
    "Formal publication by the deploying organization",
    "Authorized organizational attestation",
    "Other public source",
)
EVIDENCE = {
    "type": "object",
    "patternProperties": {
        r"^\w+$": {"oneOf": [group({"evidence_source_type": EVIDENCE_TYPE, kind: BIBTEX}) for kind in PUBLICATIONS]}
    },
}
PARAMETERS = group(
    {"epsilon": {"type": "number"}, "delta": {"type": ["number", "string"]}, "rho": {"type": "number"}},
    "epsilon", "delta", "rho",
)  # fmt: skip
VARIANTS = one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom")
PRODUCTS = one_of(
    "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"
)
SECTORS = one_of("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
STATES = one_of(
    "Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)", "Approved (Pending)"
)
DEPLOYMENT = {
    "basic": group({
        "name": TEXT, "data_curators": {"type": "array", "items": CURATOR, "minItems": 1}, "description": TEXT,
        "intended_use": TEXT, "data_product_type": PRODUCTS, "data_product_region": TEXT,
        "data_product_sector": SECTORS, "publication_date": {"type": "string", "format": "date"},
    }),
    "dp_variant": group({"variant_name": VARIANTS, "data_domain": TEXT, "unprotected_quantities": TEXT}),
    "privacy_loss": group({
        "privacy_unit": TEXT, "privacy_unit_details": TEXT, "number_of_privacy_units": {"type": "integer"},
        "privacy_parameters": PARAMETERS, "privacy_parameters_details": TEXT,
    }),
    "deployment_model": group({
        "model_name": one_of("Local", "Central", "Shuffle", "Federated", "Varies"), "model_name_details": TEXT,
        "trust_assumptions": TEXT, "actors": TEXT, "release_type": one_of("One release", "Many releases"),
        "release_type_details": TEXT, "data_source_type": one_of("Static", "Dynamic"),
        "data_source_type_details": TEXT, "access_type": one_of("Interactive", "Non-interactive"),
        "access_type_details": TEXT,
    }),
    "implementation": group({
        "preprocessing_and_hyperparameter_tuning": TEXT, "mechanisms": TEXT, "composition": TEXT,
        "post_processing": TEXT, "justification": TEXT, "utility": TEXT, "additional_information": TEXT,
    }),
    "administrative": group({
        "evidence_sources": EVIDENCE, "status": STATES,
        "registry_authors": {"type": "array", "items": TEXT, "minItems": 1},
        "tier": {"type": "integer", "enum": [1, 2, 3]},
    }, "evidence_sources"),
}  # fmt: skip
SCHEMA = group({"url_slug": TEXT, "deployment": group(DEPLOYMENT)})


def format_problems(path: Path) -> list[str]:
    """What the registry would refuse in a file: its name, its fields and values, and styles that fold lines."""
    problems = [] if re.fullmatch(r"[a-z0-9_]+\.yaml", path.name) else ["the name of the file"]
    text = path.read_text()
    validator = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
    for error in validator.iter_errors(yaml.safe_load(text)):
        problems.append(f"{'.'.join(map(str, error.path))}: {error.message}")
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if getattr(token, "style", None) not in (None, "|", "'", '"'):
            problems.append(f"the style of {token.value}")
    return problems
