"""`labeldp remove`: what stays has the bytes that it had, the audit passes, and planted changes are found."""

import contextlib
import datetime
import gzip
import hashlib
import json
import os
import re
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.pipelines.publish import removal

from tests.audit.written_files import law, plant

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
# Places in the log.
GONE = (0, 5, 349, 350, 599)
TEXT = "ids of text"


def frames(path: Path) -> list[bytes]:
    """The frames of a TFRecord file, by the lengths in their headers."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    found, place = [], 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        found.append(content[place : place + length + 16])
        place += length + 16
    return found


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "release.json").read_text())


def ids(places: Any) -> list[int]:
    return [place + 1000 for place in places]


def records(path: Path) -> list[Any]:
    """The records of a shard: frames, or rows."""
    return pq.read_table(path).to_pylist() if path.suffix == ".parquet" else frames(path)


@pytest.mark.parametrize("name", ["csv to tfrecord, labels", "gzip", TEXT, "cells", "several labels"])
def test_only_the_named_records_go_and_the_manifest_tells(
    base: Any, remove: Any, tmp_path: Path, shard_paths: Any, tree: Any, name: str
) -> None:
    made, reduced = base(name), tmp_path / "reduced"
    charges = made.ledger.read_bytes()
    remove(made.folder, ids(GONE)).ok()
    assert made.ledger.read_bytes() == charges
    first, second = ([records(path) for path in shard_paths(folder)] for folder in (made.folder, reduced))
    # The job keeps the order of the log.
    flat = [record for shard in first for record in shard]
    kept = [record for place, record in enumerate(flat) if place not in GONE]
    assert [record for shard in second for record in shard] == kept
    for one, other in zip(shard_paths(made.folder), shard_paths(reduced), strict=True):
        schemas = [pq.read_schema(path) for path in (one, other) if path.suffix == ".parquet"]
        assert not schemas or schemas[0].equals(schemas[1], check_metadata=True)
    before, after = tree(made.folder), tree(reduced)
    assert before.keys() == after.keys()
    for path in before:
        if path.startswith("data/"):
            continue
        if not path.endswith("release.json"):
            assert before[path] == after[path], path
            continue
        earlier, now = json.loads(before[path]), json.loads(after[path])
        digest = hashlib.sha256(before["release.json"]).hexdigest()
        assert now.pop("removals") == [{"date": "2026-01-31", "records": len(GONE), "manifest": digest}]
        del earlier["shards"]
        assert list(now.pop("shards").values()) == [*map(len, second)]
        assert earlier == now


@pytest.mark.parametrize("name", [TEXT, "gzip", "center of classes", "several labels"])
def test_the_audit_passes_after_one_removal_and_after_another(
    release: Any, remove: Any, audit: Any, invoke: Any, tmp_path: Path, name: str
) -> None:
    """A repeated removal gives the same bytes."""
    made, reduced, whole = release(name), tmp_path / "reduced", manifest(release(name))["records"]
    remove(made, ids(range(1, 300, 3))).ok()
    remove(made, ids(range(1, 300, 3)), output="repeated").ok()
    assert [path.read_bytes() for path in sorted(reduced.rglob("*.*"))] == [
        path.read_bytes() for path in sorted((tmp_path / "repeated").rglob("*.*"))
    ]
    assert audit(reduced) == "PASS"
    remove(reduced, ids([0, 299]), "ids", "--removed_on=2026-02-01", output="again").ok()
    said = invoke(["audit", str(tmp_path / "again"), "--data"]).ok().out
    assert said.splitlines()[-1] == "PASS"
    assert f"102 of {whole} records since: 100 on 2026-01-31, 2 on 2026-02-01" in said
    assert f"data         {whole - 102} records in" in said
    first, second = manifest(tmp_path / "again")["removals"]
    assert first["manifest"] == hashlib.sha256((made / "release.json").read_bytes()).hexdigest()
    assert second["manifest"] == hashlib.sha256((reduced / "release.json").read_bytes()).hexdigest()
    assert ("the center was made from as many records" in said) == (name == "center of classes")


def test_half_of_the_records_may_go(release: Any, remove: Any, audit: Any, tmp_path: Path) -> None:
    for name in ("cells", "center of classes"):
        remove(release(name), ids(range(0, 3000, 2)), output=name).ok()
        assert audit(tmp_path / name) == "PASS"


def test_the_date_is_today_by_default(release: Any, tmp_path: Path, invoke: Any) -> None:
    (tmp_path / "ids").write_text("1001\n")
    days = [datetime.datetime.now(datetime.timezone.utc).date().isoformat()]
    invoke(["remove", str(release(TEXT)), f"--ids={tmp_path}/ids", f"--output={tmp_path}/reduced"]).ok()
    days.append(datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    assert days[0] <= manifest(tmp_path / "reduced")["removals"][0]["date"] <= days[1]


def test_the_output_says_what_stays_known(release: Any, remove: Any, tmp_path: Path) -> None:
    outcome = remove(release("cells"), ids([0, 5, 1499, 2222, 2999])).ok()
    stated = manifest(tmp_path / "reduced")
    (known,) = [line for line in outcome.out.splitlines() if line.startswith("known ")]
    spent = stated["center_epsilon"] + stated["prior_epsilon"]
    assert f"epsilon {spent}"[:16] in known
    assert f"{stated['center_epsilon']:g} for the center + {stated['prior_epsilon']:g} for the histogram" in known
    # The sample has all records of so small a release.
    assert "3000 sampled records, 5 of which have the codes of removed records" in outcome.out
    assert "labels at epsilon 2.0" in outcome.out
    assert f"digest {stated['input_digest'][:16]}" in outcome.out
    said = (outcome.out + outcome.err).replace(str(tmp_path.parent), "")
    assert not re.search(r"(?<![.\d])(2499|3222|3999)(?!\d)", said)
    said = remove(release("center of classes"), ids(GONE), output="classes").ok().out
    assert "3000 sampled records, 5 of which have the codes of removed" in said


def test_the_sample_of_records_with_rounded_features(release: Any, remove: Any) -> None:
    said = remove(release("center of classes, far"), ids(range(1000))).ok().out
    pattern = r"sampled records, (\d+) of which have the codes of removed records( and (\d+))?"
    found, _, more = re.findall(pattern, said)[0]
    # Rounding moves some over a cut.
    assert int(found) + int(more or 0) == 1000
    assert 0 < int(found) < 1000


def test_all_records_of_units(release: Any, remove: Any, audit: Any, tmp_path: Path, shard_paths: Any) -> None:
    outcome = remove(release("units"), ["3", "170"], "units").ok()
    users = [user for path in shard_paths(tmp_path / "reduced") for user in pq.read_table(path)["user"].to_pylist()]
    assert len(users) == 400 - 4
    assert not {3, 170} & set(users)
    assert audit(tmp_path / "reduced") == "PASS"
    assert "of the label of the removed records of a unit" in outcome.out
    stated = manifest(tmp_path / "reduced")
    assert "for the histogram, which" in outcome.out
    assert f"{2 * stated['prior_epsilon']:g} for the histogram" in outcome.out


def test_rows_of_shards(release: Any, remove: Any, audit: Any, tmp_path: Path, shard_paths: Any) -> None:
    first = next(iter(manifest(release(TEXT))["shards"].values()))
    lines = ["part-00001-of-00003.parquet,0", "data/part-00001-of-00003.parquet,2"]
    remove(release(TEXT), [*lines, f"part-00000-of-00003.parquet,{first - 1}"], "rows").ok()
    kept = [name for path in shard_paths(tmp_path / "reduced") for name in pq.read_table(path)["id"].to_pylist()]
    assert kept == [str(name) for name in ids(place for place in range(600) if place - first not in (-1, 0, 2))]
    assert audit(tmp_path / "reduced") == "PASS"


@pytest.mark.parametrize(
    ("name", "lines", "flag", "code", "said"),
    [
        (TEXT, ["1001", "nobody", "1002", "none"], "ids", 1, "2 of 4 names are of no record"),
        (TEXT, ["1001", "nobody", "1002", "none"], "ids", 1, "(lines 2, 4)"),
        (TEXT, b"", "ids", 2, "is empty: name at least one record"),
        (TEXT, ["1001", "", "1002"], "ids", 2, "there is an empty line; delete it: line 2"),
        (TEXT, ids(range(600)), "ids", 1, "all records of"),
        (TEXT, ["1"], "units", 2, "has no privacy units: name --ids or --rows"),
        (TEXT, ["part-00000-of-00003.parquet,200"], "rows", 2, "1 of the lines name no row of the shards"),
        (TEXT, ["part-00000-of-00003.parquet"], "rows", 2, "1 of the lines are not SHARD,ROW"),
        (TEXT, ["part-00000-of-00003.parquet,-1"], "rows", 2, "a number from 0 on: line 1"),
        ("named by rows", ["/log/log-0.csv,7"], "rows", 2, "1 of the lines name no row of the shards"),
        ("named by rows", ["1001"], "ids", 2, "records of this release have no ids, only files and rows: name --rows"),
        ("cells", ["7", "07", "seven"], "ids", 2, "2 of the lines are not integers in their plain form"),
        ("cells", ["7", "07", "seven"], "ids", 2, "lines 2, 3"),
        ("gzip", ["9" * 5000], "ids", 1, "1 of 1 names are of no record"),
    ],
)
def test_names_that_are_refused(
    release: Any, remove: Any, tmp_path: Path, name: str, lines: Any, flag: str, code: int, said: str
) -> None:
    outcome = remove(release(name), lines, flag)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.error
    assert f"--{flag}" in outcome.error or "all records" in outcome.error
    assert "nobody" not in outcome.error
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{flag}.txt"]


def test_missing_names_may_be_passed_over(release: Any, remove: Any, tmp_path: Path) -> None:
    outcome = remove(release(TEXT), ["1001", "nobody", "1001"], "ids", "--missing_ok").ok()
    assert "1 of 2 names are of no record" in outcome.err
    assert "ids.txt: 1 of 3 lines repeats another" in outcome.err
    assert manifest(tmp_path / "reduced")["removals"][0]["records"] == 1
    outcome = remove(release(TEXT), ["nobody"], "ids", "--missing_ok", output="other")
    assert (outcome.code, "names no record of" in outcome.error) == (1, True)


def test_files_of_windows_and_editors(release: Any, remove: Any, tmp_path: Path) -> None:
    remove(release(TEXT), b"\xef\xbb\xbf1001\r\n1003").ok()
    assert manifest(tmp_path / "reduced")["removals"][0]["records"] == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "none of --ids, --units and --rows is given"),
        (["--ids=ids", "--rows=rows"], "more than one of"),
        (["--ids=absent"], "--ids absent cannot be read"),
        (["--ids=ids", "--removed_on=31.1.2026"], "--removed_on 31.1.2026 is no date: write YYYY-MM-DD"),
        (["--ids=ids", "--removed_on=2026-02-30"], "is no date"),
        (["--ids=ids", "--removed_on=9999-01-01"], "lies in the future"),
        (["--ids=ids", "--output=RELEASE/inside"], "lies inside the release"),
        (["--ids=ids", "--output=RELEASE"], "--output"),
        (["--ids=ids", "--output=link/inside"], "lies inside the release that is read"),
    ],
)
def test_flags_that_are_refused(
    release: Any, invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Any, flags: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids").write_text("1001\n")
    (tmp_path / "link").symlink_to(release(TEXT))
    before = tree(release(TEXT))
    flags = [flag.replace("RELEASE", str(release(TEXT))) for flag in flags]
    output = [] if any(flag.startswith("--output") for flag in flags) else ["--output=reduced"]
    outcome = invoke(["remove", str(release(TEXT)), *flags, *output])
    assert outcome.code == 2
    assert said in outcome.error
    assert tree(release(TEXT)) == before
    assert not (tmp_path / "reduced").exists()


def test_dates_may_not_go_back(release: Any, remove: Any, tmp_path: Path) -> None:
    remove(release(TEXT), ["1001"]).ok()
    outcome = remove(tmp_path / "reduced", ["1002"], "ids", "--removed_on=2026-01-30", output="again")
    assert (outcome.code, "lies before the last removal, of 2026-01-31" in outcome.error) == (2, True)


def test_an_interrupt_after_publication_does_not_deny_it(
    release: Any, remove: Any, audit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a store, the end of `publishing` ends the claim."""
    publishing = removal.publishing

    @contextlib.contextmanager
    def interrupted(*arguments: Any) -> Iterator[None]:
        with publishing(*arguments):
            yield
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(removal, "publishing", interrupted)
    # An interrupted command ends its process.
    monkeypatch.setattr(os, "_exit", lambda code: None)
    remove(release(TEXT), ["1001"]).ok()
    assert audit(tmp_path / "reduced").startswith("PASS")


def test_half_published_or_damaged_folders_are_refused(copied: Any, remove: Any, tmp_path: Path) -> None:
    folder = copied(TEXT)
    stated, shard = (folder / "release.json").read_bytes(), folder / "data" / "part-00001-of-00003.parquet"
    content = shard.read_bytes()

    def refused(code: int, said: str) -> None:
        outcome = remove(folder, ["1001"])
        assert (outcome.code, said in outcome.error) == (code, True), outcome

    (folder / "release.json").unlink()
    refused(2, "it has no release.json, which is written last")
    (folder / "release.json").write_bytes(stated)
    shard.unlink()
    refused(1, "fails its audit, so nothing is removed")
    pq.write_table(pq.read_table(pa.BufferReader(content)).slice(1), shard)
    refused(1, "does not hold as many records as release.json says")
    shard.write_bytes(content[: len(content) // 2])
    refused(1, "cannot be read as Parquet")
    assert not (tmp_path / "reduced").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_one_of_several_labels_is_no_release_of_its_own(release: Any, remove: Any) -> None:
    outcome = remove(release("several labels") / "labels" / "y", ids(GONE))
    assert (outcome.code, "is one label of a release of several" in outcome.error) == (2, True)


SUM = "shards do not add up to release.records"


@pytest.mark.parametrize(
    ("name", "file", "change", "words"),
    [
        (TEXT, "release", {"removals.0.records": 4}, f"{SUM}, less"),
        (TEXT, "release", {"removals.0.records": 6}, f"{SUM}, less"),
        (TEXT, "release", {"removals": ...}, SUM),
        (TEXT, "release", {"records": 599}, f"{SUM}, less"),
        (TEXT, "release", {"removals": []}, "release.removals does not have 1 to"),
        (TEXT, "release", {"removals": lambda given: given * 2}, "an earlier release.json twice"),
        (TEXT, "release", {"removals.0.date": "2026-02-30"}, "a date that is not YYYY-MM-DD"),
        (TEXT, "release", {"removals.0.manifest": "none"}, "removals.manifest is not a text of"),
        (TEXT, "release", {"removals.0.ids": ["user 0"]}, "that labeldp does not write: ids"),
        (TEXT, "release", {"removals.0.records": True}, "release.removals.records"),
        ("several labels", "labels/y/release", {"removals.0.date": "2025-12-31"},
         "label y: release.removals is not that of the whole release"),
        # Where removals and records are both stated too low, the manifest agrees with its shards.
        ("cells", "release", {"removals.0.records": 4, "records": 2999},
         "center.linear.cells.records are not the numbers of records in each cell"),
        (TEXT, "table", {"y": lambda labels: [*labels[:17], labels[17] + 0.25, *labels[18:]]},
         "has 1 labels that are no output of the mechanism, first in record 17"),
        # The distribution is not that of the counted records.
        (TEXT, "tables", {"y": lambda labels: labels[:1] * len(labels)}, "the labels were not drawn from the channel"),
    ],
)  # fmt: skip
def test_a_reduced_release_that_was_changed_fails(
    release: Any, remove: Any, tmp_path: Path, name: str, file: str, change: Any, words: str
) -> None:
    remove(release(name), ids(GONE)).ok()
    law(tmp_path / "reduced", file, change, words, data=name == "cells")


def test_fewer_counted_records_do_not_agree_with_a_center_of_classes(
    release: Any, remove: Any, invoke: Any, tmp_path: Path
) -> None:
    remove(release("center of classes"), ids(GONE)).ok()
    plant(tmp_path / "reduced", "release", {"removals.0.records": 4, "records": 2999})
    said = invoke(["audit", str(tmp_path / "reduced"), "--data"]).out
    assert "the center was made from other records" in said


def test_others_open_a_reduced_release(release: Any, remove: Any, invoke: Any, tmp_path: Path) -> None:
    from labeldp import training

    for name, whole in ((TEXT, 600), ("center of classes", 3000)):
        remove(release(name), ids(GONE), output=name).ok()
        invoke(["report", str(tmp_path / name), f"--output={tmp_path / name}.html"]).ok()
        page = (tmp_path / f"{name}.html").read_text()
        assert f"5 of {whole} records since: 5 on 2026-01-31" in page
        assert f"{whole - 5:,}" in page
    assert training.Release.open(tmp_path / TEXT).records == 600 - len(GONE)


def test_statistics_of_a_validated_release(
    base: Any, remove: Any, invoke: Any, tmp_path: Path, key_file: Path, command: Any, audit: Any, tree: Any
) -> None:
    """They count removed records and their released labels: all of epsilon stays. The report knows what they count."""
    flags = {**base(TEXT).flags, "output": tmp_path / "released", "ledger": None}
    invoke([*command("privatize", flags), "--validate"]).ok()
    outcome = remove(tmp_path / "released", ids(GONE)).ok()
    assert "says at most epsilon 2.0, as before" in outcome.out
    assert "statistics validation/ still counts features and released labels" in outcome.out
    assert tree(tmp_path / "reduced" / "validation") == tree(tmp_path / "released" / "validation")
    assert audit(tmp_path / "reduced") == "PASS"
    invoke(["report", str(tmp_path / "reduced")]).ok()
    page = (tmp_path / "reduced" / "report.html").read_text()
    assert "5 removed since, which noised statistics still count" in page
    # Neither the page nor other files are of the next release.
    validation = tmp_path / "reduced" / "validation"
    for stray in (validation / "notes.pbtxt", validation / "folder"):
        stray.mkdir() if stray.name == "folder" else stray.write_text("")
        refused = remove(tmp_path / "reduced", ids([1]), output="again")
        said = f"validation/{stray.name} is not a file of the release"
        assert (refused.code, said in refused.error) == (1, True)
        stray.rmdir() if stray.name == "folder" else stray.unlink()
    (validation / "schema.pbtxt").unlink()
    (validation / "schema.pbtxt").symlink_to(key_file)
    refused = remove(tmp_path / "reduced", ids([1]), output="again")
    assert (refused.code, "validation/schema.pbtxt is not a regular file" in refused.error) == (1, True)
    (validation / "schema.pbtxt").unlink()
    remove(tmp_path / "reduced", ids([1]), output="again").ok()
    assert not (tmp_path / "again" / "report.html").exists()
    kept = {"anomalies.pbtxt", "feature_stats.pb", "output_stats.pb"}
    assert {path.name for path in (tmp_path / "again" / "validation").iterdir()} == kept
    without = remove(tmp_path / "released", ids(GONE), "ids", "--without_validation", output="without").ok()
    assert "says at most epsilon 2.0, as before" not in without.out
    assert not (tmp_path / "without" / "validation").exists()
    assert audit(tmp_path / "without") == "PASS"


def test_shards_in_folders(release: Any, remove: Any, tmp_path: Path, audit: Any) -> None:
    remove(release("partitions"), ids([0, 1, 400])).ok()
    place = next(iter(manifest(tmp_path / "reduced")["shards"]))
    assert place.startswith("part=A/")
    remove(tmp_path / "reduced", [f"{place},0"], "rows", output="again").ok()
    assert pq.read_table(tmp_path / "again" / "data" / place)["id"].to_pylist() == ids(range(3, 350))
    assert audit(tmp_path / "again") == "PASS"


def test_a_removal_is_signed_anew(release: Any, remove: Any, invoke: Any, tmp_path: Path, signing_key: Path) -> None:
    signed, unsigned = tmp_path / "reduced", tmp_path / "unsigned"
    signer = f"--signer={signing_key.with_suffix('.pub')}"
    remove(release(TEXT), ids([3, 4]), "ids", f"--sign={signing_key}").ok()
    assert "as they were signed" in invoke(["audit", str(signed), "--data", signer]).ok().out
    warned = remove(signed, ids([5]), output="unsigned").ok()
    assert f"{signed} is signed; without --sign KEY the new release is not" in warned.err
    assert "signature.json is missing: the release is not signed" in invoke(["audit", str(unsigned), signer]).out
    refused = remove(signed, ids([5]), "ids", f"--sign={tmp_path / 'nowhere'}", output="refused")
    assert (refused.code, (tmp_path / "refused").exists()) == (2, False)
    (signed / "data" / "added").write_text("")
    for flag in (f"--sign={signing_key}", signer):
        refused = remove(signed, ids([5]), "ids", flag, output="refused")
        assert (refused.code, (tmp_path / "refused").exists()) == (1, False)
        assert "data/added was not signed" in refused.error
