"""Malformed documents of a release: auditor and readers refuse hostile values at every path of a valid document."""

import copy
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from labeldp.audit import audit_release, center_replay
from labeldp.audit.audit_mechanism import Audit, audit_document, audit_mechanism
from labeldp.audit.audit_release import audit_path
from labeldp.mechanisms.center.center_model import CenterModel
from labeldp.mechanisms.center.class_model import ClassModel
from labeldp.pipelines.publish.manifest import parse_manifest, read_document
from labeldp.pipelines.spec.mechanism_file import read_mechanism_file
from labeldp.transforms.errors import InputError

from tests.audit.written_files import write_document

FORMS = (
    "missing labels", "auto", "fine grid", "gaussian", "units", "center column", "records without a label",
    "csv to parquet, linear", "cells", "classes", "units, center of classes", "several labels",
)  # fmt: skip
"""Releases that have every member of a document."""
SHARED = ("output", "shards", "versions", "dead_letters", "identity", "where", "records", "records_without_label")
Place = tuple[Any, ...]


def paths(document: Any, path: Place = ()) -> Iterator[Place]:
    """Paths of a document: of a list, the first element, and every object."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from paths(value, (*path, key))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            if place == 0 or isinstance(value, dict):
                yield from paths(value, (*path, place))


def at(document: Any, path: Place) -> Any:
    return document if not path else at(document[path[0]], path[1:])


def put(document: Any, path: Place, value: Any) -> Any:
    """A copy with another value at a path; ... removes it."""
    if not path:
        return value
    document = copy.copy(document)
    if value is ... and len(path) == 1:
        del document[path[0]]
    else:
        document[path[0]] = put(document[path[0]], path[1:], value)
    return document


def hostile(value: Any) -> dict[str, Any]:
    """Values in place of one, by their kind."""
    found = {
        "missing": ..., "null": None, "true": True, "-1": -1, "1e400": 10**400, "nan": math.nan, "inf": math.inf,
        "empty": "", "break": "x\nPASS", "[]": [], "{}": {"": 0}, "list": [value],
    }  # fmt: skip
    if isinstance(value, (int, float)):
        found |= {"text": str(value), "other": float(value) if isinstance(value, int) else int(value)}
    elif isinstance(value, list):
        found |= {"longer": [*value, *value[:1]], "shorter": value[:-1]}
    elif isinstance(value, dict):
        found |= {"more": value | {"more": 1}}
    return {kind: each for kind, each in found.items() if type(each) is not type(value) or each != value}


def changes(name: str, release: Callable[[str], Path], form: str) -> Iterator[tuple[str, str, Any]]:
    """Changed documents of a form, with path and kind of the change: of each path, in the first form that has it."""
    seen: set[tuple[str, str]] = set()
    for each in FORMS:
        source = release(each) / name
        document = json.loads(source.read_text()) if source.exists() else {}
        for path in paths(document) if document else ():
            title = ".".join("*" if isinstance(key, int) or key[:5] == "part-" else key for key in path)
            # Members of the shards are the same in every manifest.
            key = ("" if title.split(".")[0] in SHARED else document["format"], title)
            if key not in seen and each == form:
                for kind, value in hostile(at(document, path)).items():
                    if path or kind != "missing":
                        yield title, kind, put(document, path, value)
            seen.add(key)
        if each == form:
            return


Harmless = list[tuple[str, str, str]]
"""Paths, kinds of changes that are accepted there, and why."""


def law(found: Iterable[tuple[str, str, Any]], tried: Callable[[Any], str | None], harmless: Harmless) -> None:
    """Every change is refused, or listed; `tried` gives the error of a document, None if it is accepted."""
    accepted = []
    for title, kind, document in found:
        error = tried(document)
        if error is not None:
            assert error.isprintable()
            assert 0 < len(error) < 2000
        elif not any(
            kind in kinds.split() and any(fnmatchcase(title, path) for path in [*listed.split(), *[""][: not listed]])
            for listed, kinds, _ in harmless
        ):
            accepted.append((title, kind))
    assert accepted == []


CENTER: Harmless = [
    ("prior label unit classes *unit *linear *cells", "missing null", "optional: a valid document of another kind"),
    ("*.name *.values.* *column *label", "empty break", "names and values are any text; reports escape them"),
    ("*counts.* *.weights.*.* *.mean", "-1", "noised counts, weights and means may be negative"),
    ("*.mean *.spread *epsilon *missing_label", "other", "the same number; a release has it as labeldp writes it"),
    ("*.cuts *.values", "[] shorter", "public parts, which the records decide: the audit of --data reads them"),
    ("*.cuts.* *domain.*", "missing", "public parts, as above"),
    ("*.logit", "true", "the other kind of a column, as above"),
]
MECHANISM: Harmless = [
    *CENTER,
    ("", "more", "a file alone may have members for others; a release may not"),
    ("parameters certificate prior choice", "more", "as above"),
    ("declared_grid choice choice.model_errors.* prior.missing_label", "missing null", "optional"),
    ("parameters.*", "missing null true -1 empty list text other", "what was asked for: nothing is computed from it"),
    ("choice.model_errors.*", "other", "the same number"),
    ("center.domain", "shorter", "a domain with as many cells of residuals"),
]
REPLAYED: Harmless = [
    ("*linear.sums.* *.coefficients.* *.cells.sums.* *.range.* *.leaves.* ", "-1", "what the replay decides"),
]
RELEASE: Harmless = [
    ("label where", "empty break", "any text, which reports escape"),
    ("where loss features", "null", "unknown to some releases"),
    ("parameters.*", "true other", "the same number"),
    ("dead_letters", "missing", "optional"),
]
# The auditor compares a manifest with the mechanism; the reader takes any value of the right type.
TYPED: Harmless = [
    ("*", "-1 1e400 empty break other", "of the right type: the auditor compares it with others"),
    ("missing_label center center_epsilon loss features expected_loss.*", "missing null text", "optional"),
    ("warnings shards expected_loss", "[] {} longer shorter more", "any number of members"),
    ("warnings.* shards.* versions.* expected_loss.*", "missing", "as above"),
]


@pytest.fixture(autouse=True)
def not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not follow from noised numbers is planted in test_planted_centers.py."""
    for replay in ("linear_replay_problems", "class_replay_problems"):
        monkeypatch.setattr(center_replay, replay, lambda _: ())


@pytest.mark.parametrize("form", FORMS)
def test_the_auditor_refuses_a_mechanism(release: Any, form: str) -> None:
    found = changes("mechanism.json", release, form)
    law(found, lambda document: "; ".join(audit_mechanism(document).problems) or None, [*MECHANISM, *REPLAYED])


def kept_audits() -> Callable[[Any], Audit]:
    """Audits each mechanism file once: it is the same beside all changes of another file."""
    kept: dict[str, Audit] = {}

    def audited(document: Any) -> Audit:
        text = json.dumps(document)
        if text not in kept:
            kept[text] = audit_document(document)
        return kept[text]

    return audited


@pytest.mark.parametrize("name", ["release.json", "mechanism.json", "center.json"])
@pytest.mark.parametrize("form", FORMS)
def test_the_auditor_refuses_a_release(
    release: Any, copied: Any, monkeypatch: pytest.MonkeyPatch, form: str, name: str
) -> None:
    folder = copied(form)
    if name != "mechanism.json":
        monkeypatch.setattr(audit_release, "audit_document", kept_audits())

    def tried(document: Any) -> str | None:
        write_document(folder / name, document)
        return "; ".join(audit_path(str(folder), data=True).problems) or None

    # Documents that are no object: test_documents.py. Of other files, what a file alone may have or lack.
    found = (change for change in changes(name, release, form) if change[0])
    law((change for change in found if name == "release.json" or change[1] in ("missing", "more")), tried, RELEASE)


READERS: dict[str, Callable[[str], Any]] = {
    "mechanism.json": lambda path: read_mechanism_file(path).to_text(),
    "release.json": lambda path: parse_manifest(read_document(path)),
    "center.json": lambda path: model(Path(path).read_text()),
}


def model(text: str) -> Any:
    kind = ClassModel if '"classes"' in text else CenterModel
    return kind.from_json(text).to_document()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "several labels"])
def test_readers_refuse_or_read_the_same(release: Any, tmp_path: Path, form: str, name: str) -> None:
    path, read = tmp_path / name, READERS[name]
    if not (release(form) / name).exists():
        return
    original = read(str(release(form) / name))
    expected = ValueError if name == "center.json" else InputError

    def tried(document: Any) -> str | None:
        path.write_text(json.dumps(document))
        try:
            return "the same" if read(str(path)) == original else None
        except expected as error:
            return str(error) if name == "center.json" or str(path) in str(error) else "\n"

    found = changes(name, release, form)
    # Centers of mechanism.json are read as those of center.json.
    found = (change for change in found if not re.match(r"(center\.linear|class_center\.center)\.", change[0]))
    law(found, tried, TYPED if name == "release.json" else CENTER if name == "center.json" else MECHANISM)
