"""The request of a run: it survives the way through its file."""

import dataclasses
import json
from pathlib import Path

import pytest
from labeldp.mechanisms.release.unit_bound import SINGLE, UnitBound
from labeldp.pipelines.ledger.spent_budget import Caps, Window
from labeldp.pipelines.publish.output_folder import Staging
from labeldp.pipelines.publish.request import REQUEST_NAME, Request, RequestedLabel, new_run, read_run
from labeldp.pipelines.spec.label import Budget
from labeldp.transforms.errors import InputError
from labeldp.transforms.noise_key_file import NoiseKeyFile

REQUEST = Request(
    "privatize", "0" * 32,
    (RequestedLabel("y", Budget(0.1, 1e-6, 0.01), None, "squared"), RequestedLabel("z", Budget(0.2), "id", "absolute")),
    ("y", "z", "id"), "/out/released", "released", "parquet", (("month", True), ("country", False)),
    {"format": "delta", "name": "log", "id": "7", "snapshot": "3", "schema": "0"}, "a=b",
    "given schema", False, UnitBound("user", 3), Caps(1.0, 0.0, Window.parse("30d")), "/out/ledger.jsonl",
    NoiseKeyFile("/key", group=True), True,
)  # fmt: skip
PLAIN = dataclasses.replace(REQUEST, unit=SINGLE, caps=Caps(), table=None, where=None, validation=None, partitions=())


@pytest.mark.parametrize("request_", [REQUEST, PLAIN])
def test_a_request_survives_the_way_through_its_file(request_: Request, tmp_path: Path) -> None:
    run = new_run(request_)
    run.write(Staging(str(tmp_path), str(tmp_path)))
    assert read_run(str(tmp_path)) == run
    assert run.request == request_
    assert new_run(request_).digest != run.digest


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": "labeldp-request-1"}', "[" * 100_000])
def test_what_is_no_request_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / REQUEST_NAME).write_text(text)
    with pytest.raises(InputError, match=r"request.json is not the request of a run"):
        read_run(str(tmp_path))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Request)])
def test_a_member_that_is_missing_is_refused(name: str, tmp_path: Path) -> None:
    new_run(REQUEST).write(Staging(str(tmp_path), str(tmp_path)))
    path = tmp_path / REQUEST_NAME
    document = json.loads(path.read_text())
    del document[name]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"request.json is not the request of a run"):
        read_run(str(tmp_path))
