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

RECORDS = 3000
GONE = (0, 5, 1499, 2222, 2999)


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


def change(path: Path, **members: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | members, indent=2) + "\n")


def names(places: Any) -> list[str]:
    return [f"user {place}" for place in places]


def numbers(places: Any) -> list[int]:
    return [7 * place - 500 for place in places]


def records(path: Path) -> list[Any]:
    """The records of a shard: frames, or rows."""
    return pq.read_table(path).to_pylist() if path.suffix == ".parquet" else frames(path)


@pytest.mark.parametrize("name", ["records", "gzip", "parquet", "cells", "several"])
def test_only_the_named_records_go_and_the_manifest_tells(
    released: Any, remove: Any, audit: Any, tmp_path: Path, shard_paths: Any, tree: Any, name: str
) -> None:
    release, reduced = released(name), tmp_path / "reduced"
    ledger = release.parent / "labeldp_ledger.jsonl"
    charges, stated = ledger.read_bytes(), manifest(release)
    remove(release, names(GONE) if stated.get("identity") == "name" else numbers(GONE)).ok()
    assert ledger.read_bytes() == charges
    first, second = ([records(path) for path in shard_paths(folder)] for folder in (release, reduced))
    # The job keeps the order of the log.
    flat = [record for shard in first for record in shard]
    kept = [record for place, record in enumerate(flat) if place not in GONE]
    assert [record for shard in second for record in shard] == kept
    for one, other in zip(shard_paths(release), shard_paths(reduced), strict=True):
        schemas = [pq.read_schema(path) for path in (one, other) if path.suffix == ".parquet"]
        assert not schemas or schemas[0].equals(schemas[1], check_metadata=True)
    before, after = tree(release), tree(reduced)
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
        assert now["records"] == RECORDS
    assert name != "records" or audit(reduced) == "PASS"


@pytest.mark.parametrize("name", ["parquet", "gzip", "classes", "several"])
def test_the_audit_passes_after_one_removal_and_after_another(
    released: Any, remove: Any, audit: Any, invoke: Any, tmp_path: Path, name: str
) -> None:
    release = released(name)
    named = names if manifest(release).get("identity") == "name" else numbers
    remove(release, named(range(1, 300, 3))).ok()
    assert audit(tmp_path / "reduced") == "PASS"
    remove(tmp_path / "reduced", named([0, 299]), "ids", "--removed_on=2026-02-01", output="again").ok()
    said = invoke(["audit", str(tmp_path / "again"), "--data"]).ok().out
    assert said.splitlines()[-1] == "PASS"
    assert "102 of 3000 records since: 100 on 2026-01-31, 2 on 2026-02-01" in said
    assert "data         2898 records in" in said
    first, second = manifest(tmp_path / "again")["removals"]
    assert first["manifest"] == hashlib.sha256((release / "release.json").read_bytes()).hexdigest()
    assert second["manifest"] == hashlib.sha256((tmp_path / "reduced" / "release.json").read_bytes()).hexdigest()
    if name == "classes":
        assert "the center was made from as many records" in said


def test_half_of_the_records_may_go(released: Any, remove: Any, audit: Any, tmp_path: Path) -> None:
    for name in ("cells", "classes"):
        remove(released(name), numbers(range(0, RECORDS, 2)), output=name).ok()
        assert audit(tmp_path / name) == "PASS"


def test_a_repeated_removal_gives_the_same_bytes(released: Any, remove: Any, tmp_path: Path, tree: Any) -> None:
    for output in ("one", "other"):
        remove(released("gzip"), names(GONE), output=output).ok()
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_the_date_is_today_by_default(released: Any, tmp_path: Path, invoke: Any) -> None:
    (tmp_path / "ids").write_text("user 1\n")
    days = [datetime.datetime.now(datetime.timezone.utc).date().isoformat()]
    invoke(["remove", str(released("parquet")), f"--ids={tmp_path}/ids", f"--output={tmp_path}/reduced"]).ok()
    days.append(datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    assert days[0] <= manifest(tmp_path / "reduced")["removals"][0]["date"] <= days[1]


def test_the_output_says_what_stays_known(released: Any, remove: Any, tmp_path: Path) -> None:
    outcome = remove(released("cells"), numbers(GONE)).ok()
    stated = manifest(tmp_path / "reduced")
    (known,) = [line for line in outcome.out.splitlines() if line.startswith("known ")]
    spent = stated["center_epsilon"] + stated["prior_epsilon"]
    assert f"epsilon {spent}"[:16] in known
    assert f"{stated['center_epsilon']:g} for the center + {stated['prior_epsilon']:g} for the histogram" in known
    # The sample has all records of so small a release.
    assert "3000 sampled records, 5 of which have the codes of removed records" in outcome.out
    assert "labels at epsilon 1.0" in outcome.out
    assert f"digest {stated['input_digest'][:16]}" in outcome.out
    assert all(str(number) not in outcome.out + outcome.err for number in numbers(GONE)[2:])


def test_the_sample_of_records_with_rounded_features(released: Any, remove: Any) -> None:
    said = remove(released("gzip"), names(range(1000))).ok().out
    found, _, more = re.findall(
        r"sampled records, (\d+) of which have the codes of removed records( and (\d+))?", said
    )[0]
    assert int(found) + int(more or 0) == 1000
    assert int(found) > 900


def test_the_sample_of_a_center_of_classes(released: Any, remove: Any) -> None:
    assert (
        "3000 sampled records, 5 of which have the codes of removed"
        in remove(released("classes"), numbers(GONE)).ok().out
    )


def test_all_records_of_units(released: Any, remove: Any, audit: Any, tmp_path: Path, shard_paths: Any) -> None:
    outcome = remove(released("units"), ["3", "700"], "units").ok()
    (path,) = shard_paths(tmp_path / "reduced")
    users = pq.read_table(path)["user"].to_pylist()
    assert len(users) == RECORDS - 4
    assert not {3, 700} & set(users)
    assert audit(tmp_path / "reduced") == "PASS"
    assert "of the label of the removed records of a unit" in outcome.out
    stated = manifest(tmp_path / "reduced")
    assert "for the histogram, which" in outcome.out
    assert f"{2 * stated['prior_epsilon']:g} for the histogram" in outcome.out


def test_rows_of_shards(released: Any, remove: Any, audit: Any, tmp_path: Path, shard_paths: Any) -> None:
    lines = ["part-00001-of-00003.parquet,0", "data/part-00001-of-00003.parquet,2", "part-00000-of-00003.parquet,999"]
    remove(released("parquet"), lines, "rows").ok()
    kept = [name for path in shard_paths(tmp_path / "reduced") for name in pq.read_table(path)["name"].to_pylist()]
    assert kept == names(place for place in range(RECORDS) if place not in (999, 1000, 1002))
    assert audit(tmp_path / "reduced") == "PASS"


@pytest.mark.parametrize(
    ("name", "lines", "flag", "code", "said"),
    [
        ("parquet", ["user 1", "nobody", "user 2", "none"], "ids", 1, "2 of 4 names are of no record"),
        ("parquet", ["user 1", "nobody", "user 2", "none"], "ids", 1, "(lines 2, 4)"),
        ("parquet", b"", "ids", 2, "is empty: name at least one record"),
        ("parquet", ["user 1", "", "user 2"], "ids", 2, "there is an empty line; delete it: line 2"),
        ("parquet", names(range(RECORDS)), "ids", 1, "all records of"),
        ("parquet", ["1"], "units", 2, "has no privacy units: name --ids or --rows"),
        ("parquet", ["part-00000-of-00003.parquet,1000"], "rows", 2, "1 of the lines name no row of the shards"),
        ("parquet", ["part-00000-of-00003.parquet"], "rows", 2, "1 of the lines are not SHARD,ROW"),
        ("parquet", ["part-00000-of-00003.parquet,-1"], "rows", 2, "a number from 0 on: line 1"),
        ("csv", ["/log/log-0.csv,7"], "rows", 2, "1 of the lines name no row of the shards"),
        ("csv", ["user 1"], "ids", 2, "the records of this release have no ids, only files and rows: name --rows"),
        ("cells", ["7", "07", "seven"], "ids", 2, "2 of the lines are not integers in their plain form"),
        ("cells", ["7", "07", "seven"], "ids", 2, "lines 2, 3"),
        ("records", ["9" * 5000], "ids", 1, "1 of 1 names are of no record"),
    ],
)
def test_names_that_are_refused(
    released: Any, remove: Any, tmp_path: Path, name: str, lines: Any, flag: str, code: int, said: str
) -> None:
    outcome = remove(released(name), lines, flag)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.error
    assert f"--{flag}" in outcome.error or "all records" in outcome.error
    assert "nobody" not in outcome.error
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{flag}.txt"]


def test_missing_names_may_be_passed_over(released: Any, remove: Any, tmp_path: Path) -> None:
    outcome = remove(released("parquet"), ["user 1", "nobody", "user 1"], "ids", "--missing_ok").ok()
    assert "1 of 2 names are of no record" in outcome.err
    assert "ids.txt: 1 of 3 lines repeats another" in outcome.err
    assert manifest(tmp_path / "reduced")["removals"][0]["records"] == 1
    outcome = remove(released("parquet"), ["nobody"], "ids", "--missing_ok", output="other")
    assert (outcome.code, "names no record of" in outcome.error) == (1, True)


def test_files_of_windows_and_editors(released: Any, remove: Any, tmp_path: Path) -> None:
    remove(released("parquet"), b"\xef\xbb\xbfuser 1\r\nuser 3").ok()
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
    ],
)
def test_flags_that_are_refused(
    released: Any, invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Any, flags: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids").write_text("user 1\n")
    release = released("parquet")
    before = tree(release)
    flags = [flag.replace("RELEASE", str(release)) for flag in flags]
    output = [] if any(flag.startswith("--output") for flag in flags) else ["--output=reduced"]
    outcome = invoke(["remove", str(release), *flags, *output])
    assert outcome.code == 2
    assert said in outcome.error
    assert tree(release) == before
    assert not (tmp_path / "reduced").exists()


def test_dates_may_not_go_back(released: Any, remove: Any, tmp_path: Path) -> None:
    remove(released("parquet"), ["user 1"]).ok()
    outcome = remove(tmp_path / "reduced", ["user 2"], "ids", "--removed_on=2026-01-30", output="again")
    assert (outcome.code, "lies before the last removal, of 2026-01-31" in outcome.error) == (2, True)


def test_an_interrupt_after_publication_does_not_deny_it(
    released: Any, remove: Any, audit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a store, the end of `publishing` writes the lease."""
    publishing = removal.publishing

    @contextlib.contextmanager
    def interrupted(*arguments: Any) -> Iterator[None]:
        with publishing(*arguments):
            yield
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(removal, "publishing", interrupted)
    # An interrupted command ends its process.
    monkeypatch.setattr(os, "_exit", lambda code: None)
    remove(released("parquet"), ["user 1"]).ok()
    assert audit(tmp_path / "reduced").startswith("PASS")


def test_half_published_or_damaged_folders_are_refused(copied: Any, remove: Any, tmp_path: Path) -> None:
    folder = copied("parquet")
    stated = (folder / "release.json").read_bytes()
    (folder / "release.json").unlink()
    outcome = remove(folder, ["user 1"])
    assert (outcome.code, "it has no release.json, which is written last" in outcome.error) == (2, True)
    (folder / "release.json").write_bytes(stated)
    shard = folder / "data" / "part-00001-of-00003.parquet"
    content = shard.read_bytes()
    shard.unlink()
    outcome = remove(folder, ["user 1"])
    assert (outcome.code, "fails its audit, so nothing is removed" in outcome.error) == (1, True)
    pq.write_table(pq.read_table(pa.BufferReader(content)).slice(1), shard)
    outcome = remove(folder, ["user 1"])
    assert (outcome.code, "does not hold as many records as release.json says" in outcome.error) == (1, True)
    shard.write_bytes(content[: len(content) // 2])
    outcome = remove(folder, ["user 1"])
    assert (outcome.code, "cannot be read as Parquet" in outcome.error) == (1, True)
    assert not (tmp_path / "reduced").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_one_of_several_labels_is_no_release_of_its_own(released: Any, remove: Any) -> None:
    outcome = remove(released("several") / "labels" / "y", numbers(GONE))
    assert (outcome.code, "is one label of a release of several" in outcome.error) == (2, True)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda stated: stated["removals"][0].update(records=4), "shards do not add up to release.records, less"),
        (lambda stated: stated["removals"][0].update(records=6), "shards do not add up to release.records, less"),
        (lambda stated: stated.pop("removals"), "shards do not add up to release.records"),
        (lambda stated: stated.update(records=2999), "shards do not add up to release.records, less"),
        (lambda stated: stated["removals"].clear(), "release.removals does not have 1 to"),
        (
            lambda stated: stated["removals"].append(stated["removals"][0]),
            "an earlier release.json twice",
        ),
        (lambda stated: stated["removals"][0].update(date="2026-02-30"), "a date that is not YYYY-MM-DD"),
        (
            lambda stated: stated["removals"][0].update(manifest="none"),
            "removals.manifest is not a text of",
        ),
        (
            lambda stated: stated["removals"][0].update(ids=["user 0"]),
            "that labeldp does not write: ids",
        ),
        (lambda stated: stated["removals"][0].update(records=True), "release.removals.records"),
    ],
)
def test_a_manifest_that_states_other_removals_fails(
    released: Any, remove: Any, invoke: Any, tmp_path: Path, edit: Any, said: str
) -> None:
    remove(released("parquet"), names(GONE)).ok()
    path = tmp_path / "reduced" / "release.json"
    stated = json.loads(path.read_text())
    edit(stated)
    path.write_text(json.dumps(stated))
    outcome = invoke(["audit", str(tmp_path / "reduced")])
    assert outcome.code == 1
    assert said in outcome.out.splitlines()[-1]


@pytest.mark.parametrize("name", ["cells", "classes"])
def test_fewer_counted_records_do_not_agree_with_the_center(
    released: Any, remove: Any, invoke: Any, tmp_path: Path, name: str
) -> None:
    """Where removals and records are both stated too low, the manifest agrees with its shards."""
    remove(released(name), numbers(GONE)).ok()
    stated = manifest(tmp_path / "reduced")
    removals = [stated["removals"][0] | {"records": len(GONE) - 1}]
    change(tmp_path / "reduced" / "release.json", records=RECORDS - 1, removals=removals)
    said = invoke(["audit", str(tmp_path / "reduced"), "--data"]).out
    if name == "cells":
        assert "center.linear.cells.records are not the numbers of records in each cell" in said.splitlines()[-1]
    else:
        assert "the center was made from other records" in said


def test_a_changed_label_of_another_record_fails(released: Any, remove: Any, audit: Any, tmp_path: Path) -> None:
    remove(released("parquet"), names(GONE)).ok()
    shard = tmp_path / "reduced" / "data" / "part-00000-of-00003.parquet"
    table = pq.read_table(shard)
    labels = table["y"].to_pylist()
    labels[17] += 0.25
    pq.write_table(table.set_column(table.schema.get_field_index("y"), "y", pa.array(labels)), shard)
    assert "has 1 labels that are no output of the mechanism, first in record 17" in audit(tmp_path / "reduced")


def test_other_labels_of_the_remaining_records_fail(released: Any, remove: Any, audit: Any, tmp_path: Path) -> None:
    """All remaining labels are one output: the distribution is not that of the counted records."""
    remove(released("parquet"), names(GONE)).ok()
    for shard in (tmp_path / "reduced" / "data").iterdir():
        table = pq.read_table(shard)
        labels = pa.array([table["y"][0].as_py()] * len(table))
        pq.write_table(table.set_column(table.schema.get_field_index("y"), "y", labels), shard)
    assert "the labels were not drawn from the channel" in audit(tmp_path / "reduced")


def test_labels_that_disagree_fail(released: Any, remove: Any, invoke: Any, tmp_path: Path) -> None:
    remove(released("several"), numbers(GONE)).ok()
    path = tmp_path / "reduced" / "labels" / "y" / "release.json"
    stated = json.loads(path.read_text())
    change(path, removals=[stated["removals"][0] | {"date": "2025-12-31"}])
    said = invoke(["audit", str(tmp_path / "reduced")]).out.splitlines()[-1]
    assert "label y: release.removals is not that of the whole release" in said


def test_others_open_a_reduced_release(released: Any, remove: Any, invoke: Any, tmp_path: Path) -> None:
    from labeldp import training

    for name in ("units", "classes"):
        remove(released(name), numbers(GONE), output=name).ok()
        invoke(["report", str(tmp_path / name), f"--output={tmp_path / name}.html"]).ok()
        page = (tmp_path / f"{name}.html").read_text()
        assert "5 of 3000 records since: 5 on 2026-01-31" in page
        assert "2,995" in page
    assert training.Release.open(tmp_path / "units").records == RECORDS - len(GONE)


def test_statistics_of_a_validated_release(
    logs: Path, remove: Any, invoke: Any, tmp_path: Path, key_file: Path, command: Any, audit: Any, tree: Any
) -> None:
    """They count removed records and their released labels: all of epsilon stays. The report knows what they count."""
    flags = {"input": logs / "log.parquet", "input_format": "parquet", "output_format": "parquet", "label": "y"}
    flags |= {"label_min": 0, "label_max": 40, "label_step": 1, "epsilon": 1, "id_column": "name"}
    flags |= {"output": tmp_path / "released", "noise_key_file": key_file}
    invoke([*command("privatize", flags), "--validate"]).ok()
    outcome = remove(tmp_path / "released", names(GONE)).ok()
    assert "says at most epsilon 1.0, as before" in outcome.out
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
        refused = remove(tmp_path / "reduced", names([1]), output="again")
        said = f"validation/{stray.name} is not a file of the release"
        assert (refused.code, said in refused.error) == (1, True)
        stray.rmdir() if stray.name == "folder" else stray.unlink()
    (validation / "schema.pbtxt").unlink()
    (validation / "schema.pbtxt").symlink_to(key_file)
    refused = remove(tmp_path / "reduced", names([1]), output="again")
    assert (refused.code, "validation/schema.pbtxt is not a regular file" in refused.error) == (1, True)
    (validation / "schema.pbtxt").unlink()
    remove(tmp_path / "reduced", names([1]), output="again").ok()
    assert not (tmp_path / "again" / "report.html").exists()
    kept = {"anomalies.pbtxt", "feature_stats.pb", "output_stats.pb"}
    assert {path.name for path in (tmp_path / "again" / "validation").iterdir()} == kept
    without = remove(tmp_path / "released", names(GONE), "ids", "--without_validation", output="without").ok()
    assert "says at most epsilon 1.0, as before" not in without.out
    assert not (tmp_path / "without" / "validation").exists()
    assert audit(tmp_path / "without") == "PASS"


def test_shards_in_folders(
    remove: Any, invoke: Any, tmp_path: Path, key_file: Path, command: Any, audit: Any, logs: Path
) -> None:
    table = pq.read_table(logs / "log.parquet")
    for month in range(2):
        folder = tmp_path / "log" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(table.slice(1500 * month, 1500), folder / "log.parquet")
    flags = {
        "input": f"{tmp_path}/log/*/*.parquet",
        "input_format": "parquet",
        "output_format": "parquet",
        "label": "y",
    }
    flags |= {"label_min": 0, "label_max": 40, "label_step": 1, "epsilon": 1, "id_column": "name", "center": "cells"}
    flags |= {"output": tmp_path / "released", "noise_key_file": key_file, "partition_output": "month"}
    invoke(command("privatize", flags)).ok()
    assert "3 of which have the codes of removed" in remove(tmp_path / "released", names([0, 1, 1700])).ok().out
    place = next(iter(manifest(tmp_path / "reduced")["shards"]))
    assert place.startswith("month=0/")
    remove(tmp_path / "reduced", [f"{place},0"], "rows", output="again").ok()
    kept = pq.read_table(tmp_path / "again" / "data" / place)["name"].to_pylist()
    assert kept == names(range(3, 1500))
    assert audit(tmp_path / "again") == "PASS"


def test_a_removal_is_signed_anew(released: Any, remove: Any, invoke: Any, tmp_path: Path, signing_key: Path) -> None:
    signed, unsigned = tmp_path / "reduced", tmp_path / "unsigned"
    signer = f"--signer={signing_key.with_suffix('.pub')}"
    remove(released("parquet"), names([3, 4]), "ids", f"--sign={signing_key}").ok()
    assert "as they were signed" in invoke(["audit", str(signed), "--data", signer]).ok().out
    warned = remove(signed, names([5]), output="unsigned").ok()
    assert f"{signed} is signed; without --sign KEY the new release is not" in warned.err
    assert "signature.json is missing: the release is not signed" in invoke(["audit", str(unsigned), signer]).out
    refused = remove(signed, names([5]), "ids", f"--sign={tmp_path / 'nowhere'}", output="refused")
    assert (refused.code, (tmp_path / "refused").exists()) == (2, False)
    (signed / "data" / "part-00000-of-00003.parquet").touch()
    (signed / "data" / "added").write_text("")
    for flag in (f"--sign={signing_key}", signer):
        refused = remove(signed, names([5]), "ids", flag, output="refused")
        assert (refused.code, (tmp_path / "refused").exists()) == (1, False)
        assert "data/added was not signed" in refused.error


def test_a_link_into_the_release_is_no_output(copied: Any, remove: Any, tmp_path: Path) -> None:
    release = copied("parquet")
    (tmp_path / "link").symlink_to(release)
    refused = remove(release, names([5]), output="link/inside")
    assert refused.code == 2
    assert "lies inside the release that is read" in refused.error
