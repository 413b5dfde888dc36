"""`labeldp finish`: the release of a job whose client has ended is that of a run that waited, and is charged once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

LEDGER = "labeldp_ledger.jsonl"
SEVERAL = {"label": "y,f", "label_max": "4,1000", "epsilon": 4}


@pytest.mark.parametrize("flags", [{"num_shards": 2}, {"for": "labels"}, SEVERAL], ids=["center", "labels", "several"])
def test_a_submitted_job(
    flags: dict[str, Any], submit: Any, run_job: Any, finish: Any, unchanged: Any, outputs: Path, tree: Any, spent: Any,
    staged: Any, entries: Any,
) -> None:  # fmt: skip
    expected = unchanged(**flags)
    released = outputs / "released"
    said = submit(**flags).ok().out
    assert said == f"submitted  {released}: labeldp finish {released} waits for it and publishes it\n"
    assert [path.name for path in outputs.iterdir()] == [staged()[0].name]
    early = finish()
    assert early.code == 1
    assert f"{staged()[0]}: the results of its job are not all there; waited for 0 s" in early.error
    run_job()
    again = submit(**flags)
    assert (again.code, "labeldp finish" in again.error) == (1, True)
    assert f"\n{'':10}{released}\nPrivacy   " in finish().ok().out
    assert (tree(released), spent(outputs)) == expected
    assert sorted(path.name for path in outputs.iterdir()) == [LEDGER, "released"]
    once = len(entries(outputs))
    assert once == 1
    assert finish().ok().out == f"released   {released}: published before; its audit holds\n"
    assert len(entries(outputs)) == once
    assert (tree(released), spent(outputs)) == expected


def test_the_two_halves(
    submit: Any, run_job: Any, finish: Any, job: Any, invoke: Any, outputs: Path, tree: Any
) -> None:
    mechanism, released = outputs / "mechanism.json", outputs / "released"
    submit("fit").ok()
    run_job()
    finish(path=mechanism).ok()
    content = mechanism.read_bytes()
    assert finish(path=mechanism).ok().out.endswith("published before; its audit holds\n")
    submit("apply").ok()
    run_job()
    finish().ok()
    files, ledger = tree(released), (outputs / LEDGER).read_text()
    shutil.rmtree(released)
    mechanism.unlink()
    invoke(job("fit")).ok()
    invoke(job("apply")).ok()
    assert mechanism.read_bytes() == content
    assert tree(released) == files
    charges = [json.loads(line)["charges"] for line in (outputs / LEDGER).read_text().splitlines()]
    assert charges == [json.loads(line)["charges"] for line in ledger.splitlines()] * 2


def test_the_client_is_killed(
    graph: Path, job: Any, run_job: Any, finish: Any, unchanged: Any, outputs: Path, tree: Any, spent: Any,
    environment: dict[str, str], staged: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """A client that waits for its job, which goes on elsewhere. The result says what was released."""
    expected = unchanged()
    command = [sys.executable, "-m", "labeldp", *job(), "--runner=detached_runner.DetachedRunner"]
    places = filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    paths = {"PYTHONPATH": os.pathsep.join(places), "LABELDP_TESTS_GRAPH": str(graph)}
    with subprocess.Popen(command, env=environment | paths, stderr=subprocess.DEVNULL) as client:
        until = time.monotonic() + 60
        while not (staged() and (staged()[0] / "submitted.json").exists()) and time.monotonic() < until:
            time.sleep(0.05)
        client.send_signal(signal.SIGKILL)
    assert "not all there" in finish().error
    __import__("detached_runner")
    run_job()
    finish(f"--result_json={tmp_path / 'result'}").ok()
    assert (tree(outputs / "released"), spent(outputs)) == expected
    assert json.loads((tmp_path / "result").read_text())["records"] == 1000


def test_a_run_whose_client_lives_is_left_alone(
    submit: Any, run_job: Any, finish: Any, outputs: Path, staged: Any
) -> None:
    import fcntl

    submit().ok()
    run_job()
    descriptor = os.open(staged()[0], os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    busy = finish()
    assert (busy.code, "its run, or another command that finishes it, is going" in busy.error) == (1, True)
    assert not (outputs / LEDGER).exists()
    os.close(descriptor)
    finish(path=staged()[0]).ok()


def test_two_at_once(
    submit: Any, run_job: Any, forked: Any, unchanged: Any, outputs: Path, tree: Any, entries: Any, spent: Any
) -> None:
    expected = unchanged(num_shards=2)
    submit(num_shards=2).ok()
    command = ["finish", str(outputs / "released"), "--timeout=60"]
    commands = [forked(command) for _ in range(3)]
    run_job()
    outcomes = [each.wait().ok().out for each in commands]
    assert sum("published before" in out for out in outcomes) == 2
    assert (tree(outputs / "released"), spent(outputs)) == expected
    assert len(entries(outputs)) == 1


def test_a_job_that_has_failed(
    submit: Any, run_job: Any, finish: Any, outputs: Path, staged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.pipelines.job import submitted_job

    submit().ok()
    path = staged()[0] / "submitted.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"flink_master": "cluster:8081"}))
    name, state = json.loads(path.read_text())["job_name"], "RUNNING"
    monkeypatch.setattr(submitted_job, "_call", lambda *_: {"jobs": [{"name": name, "state": state}]})
    assert "not all there; whether it has failed, Flink tells if --flink_master" in finish().error
    master = "--flink_master=cluster:8081"
    run_job()
    assert "the job is still running" in finish(master).error
    (outputs / staged()[0] / "job_result_0.json").unlink()
    state = "FAILED"
    assert "not all there" in finish().error
    failed = finish(master)
    assert failed.code == 1
    assert f"the job {name} has failed, as cluster:8081 says; nothing is released or charged" in failed.error
    assert list(outputs.iterdir()) == []
    assert finish().code == 2


def test_an_input_that_changed(
    submit: Any, run_job: Any, finish: Any, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run can never be released, so nothing is left of it."""
    from labeldp.pipelines.publish import release_steps
    from labeldp.pipelines.publish.job_result import JobResult

    submit().ok()
    run_job()
    unsealed = release_steps.unsealed

    def changed(*arguments: Any) -> JobResult:
        found = unsealed(*arguments)
        return JobResult(found.binding, 0, found.shards)

    monkeypatch.setattr(release_steps, "unsealed", changed)
    failed = finish()
    assert (failed.code, "the input changed while the job ran" in failed.error) == (1, True)
    assert list(outputs.iterdir()) == []


def test_a_cap_that_another_run_has_reached(
    submit: Any, run_job: Any, finish: Any, job: Any, invoke: Any, outputs: Path, staged: Any, small_log: Path,
    entries: Any,
) -> None:  # fmt: skip
    """The results stay: a cap with a window may allow them later."""
    submit(epsilon_cap=1.5).ok()
    run_job()
    invoke(job(output=outputs / "other", epsilon=1.2)).ok()
    failed = finish()
    assert (failed.code, "--epsilon_cap 1.5 would be exceeded" in failed.error) == (1, True)
    assert len(entries(outputs)) == 1
    assert len(staged()) == 1
    (outputs / LEDGER).unlink()
    finish().ok()


def replaced(name: str, old: str, new: str) -> Any:
    """A change of a text in a file of the staging folder."""
    return lambda folder, other: (folder / name).write_text((folder / name).read_text().replace(old, new))


def take_mechanism(folder: Path, other: Path) -> None:
    """Takes the mechanism file of another request."""
    path = folder / "release" / "mechanism.json"
    document = json.loads(path.read_text())
    document["prior"]["epsilon"] /= 2
    path.write_text(json.dumps(document))


OTHER_RUN = "is the result of another run, or the request was changed"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (replaced("request.json", '"epsilon": 1.0', '"epsilon": 0.5'), OTHER_RUN),
        (lambda folder, other: shutil.copy(other / "job_result_0.json", folder), OTHER_RUN),
        # One record less.
        (replaced("job_result_0.json", "1000", "999"), "was changed, or its job had another key than"),
        (take_mechanism, "belongs to another mechanism file than the one that is there"),
        (replaced("request.json", "noise.key", "other.key"), "does not exist"),
    ],
)
def test_what_was_changed_is_refused(
    change: Any, problem: str, submit: Any, run_job: Any, finish: Any, outputs: Path, staged: Any, tmp_path: Path
) -> None:
    submit(output=outputs / "other").ok()
    run_job()
    other = staged()[0].rename(tmp_path / "other")
    submit().ok()
    run_job()
    change(staged()[0], other)
    failed = finish()
    assert (failed.code, problem in failed.error) == (1, True), failed.error
    assert [path.name for path in outputs.iterdir()] == [staged()[0].name]


def test_a_folder_of_another_output_is_refused(
    submit: Any, run_job: Any, finish: Any, outputs: Path, staged: Any
) -> None:
    submit(output=outputs / "other").ok()
    run_job()
    staged()[0].rename(outputs / ".released.0123456789ab")
    failed = finish()
    assert (failed.code, f"the output {outputs / 'other'}, not {outputs / 'released'}" in failed.error) == (1, True)


def test_the_key_is_named_where_the_run_is_finished(
    submit: Any, run_job: Any, finish: Any, key_file: Path, tmp_path: Path, other_key_file: Path
) -> None:
    moved = Path(shutil.copy2(key_file, tmp_path / "moved.key"))
    submit(noise_key_file=moved).ok()
    run_job()
    moved.unlink()
    assert "moved.key does not exist" in finish().error
    assert "had another key than" in finish(f"--noise_key_file={other_key_file}").error
    finish(f"--noise_key_file={key_file}").ok()


def test_a_job_that_starts_again_is_waited_for(submit: Any, run_job: Any, finish: Any, staged: Any) -> None:
    submit().ok()
    run_job()
    shard = next((staged()[0] / "release" / "data").iterdir())
    times = shard.stat()
    os.utime(shard, ns=(times.st_atime_ns, time.time_ns() + 10**9))
    assert "not all there" in finish().error
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    finish().ok()


def test_what_the_folder_holds_is_public(
    submit: Any, job: Any, invoke: Any, staged: Any, secret: bytes, outputs: Path, tree: Any
) -> None:
    from labeldp.pipelines.publish.request import _without_password

    submit().ok()
    files = tree(staged()[0])
    assert sorted(files) == ["request.json", "staging.txt", "submitted.json"]
    assert not [name for name, content in files.items() if secret in content or secret.hex().encode() in content]
    assert json.loads(files["request.json"])["key"]["path"].endswith("noise.key")
    with_password = "postgresql://me:hunter2@host/db?ledger=a&sslmode=require&sslpassword=hunter3"
    text = _without_password(with_password)
    assert text.startswith("postgresql")
    assert "hunter" not in text
    assert "//me@host/db?" in text


@pytest.mark.parametrize(
    ("flags", "more", "problem"),
    [
        ({}, [], "--no_wait_until_finish needs a runner whose jobs go on without this command: name its --runner"),
        ({}, ["--runner=FlinkRunner"], "needs a cluster that goes on without this command: name its --flink_master"),
        ({}, ["--runner=FlinkRunner", "--flink_master=h:1"], "needs workers that go on without this command"),
        ({"result_json": "r"}, ["--runner=PortableRunner"], "give --result_json to labeldp finish"),
    ],
)
def test_what_cannot_be_submitted_only(
    flags: dict[str, Any], more: list[str], problem: str, job: Any, invoke: Any, outputs: Path, tmp_path: Path
) -> None:
    if "result_json" in flags:
        flags = {"result_json": tmp_path / "r"}
    outcome = invoke([*job(**flags), *more, "--no_wait_until_finish"])
    assert (outcome.code, problem in outcome.error) == (2, True), outcome.error
    assert list(outputs.iterdir()) == []


def test_nothing_to_finish(finish: Any, outputs: Path) -> None:
    outcome = finish()
    assert (outcome.code, "is no release, and no run with this output is to be finished" in outcome.error) == (2, True)
    assert finish("--timeout=-1").code == 2


def test_a_signed_run_is_signed_by_the_command_that_finishes_it(
    submit: Any, run_job: Any, finish: Any, unchanged: Any, outputs: Path, tree: Any, signing_key: Path
) -> None:
    """No file of the run names the key. An attempt that failed leaves no signature to the next one."""
    expected = unchanged(sign=signing_key)
    said = submit(sign=signing_key).ok().out
    assert said.endswith(" waits for it and publishes it; give it --sign again\n")
    run_job()
    refused = finish()
    assert refused.code == 2
    assert "is to be signed, and no file of its run names the key: give --sign KEY again" in refused.error
    assert not (outputs / LEDGER).exists()
    signing_key.chmod(0o644)
    assert "is accessible to other users" in finish(f"--sign={signing_key}").error
    signing_key.chmod(0o600)
    finish(f"--sign={signing_key}").ok()
    assert tree(outputs / "released") == expected[0]
    again = finish(f"--sign={signing_key}").ok().out
    assert again == f"released   {outputs / 'released'}: published before; its audit holds\n"
    (outputs / "released" / "signature.json").unlink()
    assert "signature.json is missing" in finish(f"--sign={signing_key}").error


def test_a_mechanism_file_is_not_signed(
    submit: Any, run_job: Any, finish: Any, outputs: Path, signing_key: Path
) -> None:
    submit("fit").ok()
    run_job()
    path = outputs / "mechanism.json"
    refused = finish(f"--sign={signing_key}", path=path)
    assert (refused.code, "the run is of fit, which releases no records" in refused.error) == (2, True)
    finish(path=path).ok()
    refused = finish(f"--sign={signing_key}", path=path)
    assert (refused.code, "is a mechanism file, which is not signed" in refused.error) == (2, True)


def _failed_in_a_file(work: Path) -> None:
    """The address of the engine is that of a file, which says that the job has failed."""
    (work / "jobs").mkdir()
    (work / "jobs" / "overview").write_text('{"jobs": [{"name": "job", "state": "FAILED", "jid": "1"}]}')
    (work / "submitted.json").write_text(
        json.dumps({"waits": False, "flink_master": f"file://{work}", "job_name": "job"})
    )


@pytest.mark.parametrize("said", [_failed_in_a_file, "failed"])
def test_a_state_deletes_no_complete_run(
    said: Any, submit: Any, run_job: Any, finish: Any, staged: Any, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit().ok()
    run_job()
    if said == "failed":
        monkeypatch.setattr("labeldp.pipelines.cli.finish_command.state_of_job", lambda *_: said)
    else:
        said(staged()[0])
    finish().ok()
    assert (outputs / "released" / "release.json").exists()


def _linked(name: str) -> Any:
    def forge(work: Path, elsewhere: Path) -> None:
        elsewhere.mkdir()
        shutil.move(work / name, elsewhere / "moved")
        (work / name).symlink_to(elsewhere / "moved")

    return forge


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("forge", "named"),
    [
        (lambda work, _: (work / "release" / "notes.txt").write_text(""), "notes.txt"),
        (lambda work, _: (work / "release" / "data" / "empty").mkdir(), "data/empty/"),
        *((_linked(name), name) for name in ("request.json", "job_result_0.json", "release", "release/data")),
    ],
    ids=["stray", "folder", "request", "result", "release", "data"],
)
def test_a_hostile_staging_folder(
    signed: bool, forge: Any, named: str, submit: Any, run_job: Any, finish: Any, staged: Any, outputs: Path, tree: Any,
    tmp_path: Path, signing_key: Path,
) -> None:  # fmt: skip
    submit().ok()
    run_job()
    forge(staged()[0], tmp_path / "elsewhere")
    before = {path.name: tree(path) for path in tmp_path.glob("elsewhere")}
    outcome = finish(*([f"--sign={signing_key}"] if signed else []))
    assert (outcome.code, named in outcome.error) == (1, True), outcome
    assert len(staged()) == 1
    assert not (outputs / "released").exists()
    assert not (outputs / LEDGER).exists()
    assert {path.name: tree(path) for path in tmp_path.glob("elsewhere")} == before
