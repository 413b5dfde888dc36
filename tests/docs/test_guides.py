"""Blocks of the pages run as printed, each set-up in a working folder of its own, and print what the pages show."""

import json
import os
import random
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from labeldp.report.claim_file import FACTS

from tests.docs.pages import ROOT, Block, Runner, assert_same, blocks, in_shell, section_of, words_of

AUDITORS, ENGINES, PYTHON, CHOOSING = (
    f"docs/{name}.md" for name in ("guides/auditors", "guides/engines", "guides/python", "choosing")
)
TUTORIAL, PRIVATE = "docs/tutorial.md", "docs/guides/private_features.md"


# The tutorial, and what to choose.


def test_the_tutorial(page: Runner) -> None:
    """LABELDP_RENEW=1 writes the outputs into the page instead."""
    text, compared, renew = (ROOT / TUTORIAL).read_text(), 0, bool(os.environ.get("LABELDP_RENEW"))
    for block in blocks(TUTORIAL):
        assert block.kind in ("shell", "sh", "text") or block.title, block
        # The first block makes what is there already; a text is what the block before it prints.
        if block.kind in ("shell", "text"):
            continue
        printed = page.run(block)
        if block.kind != "sh" or block.shown is None:
            continue
        compared += 1
        if renew:
            before = f"{block.text}```\n\n```text\n"
            text = text.replace(before + block.shown, before + printed)
        else:
            assert_same(printed, block.shown)
    assert compared >= 8
    if renew:
        (ROOT / TUTORIAL).write_text(text)


@pytest.mark.slow
def test_what_to_choose(page: Runner, subtests: pytest.Subtests) -> None:
    """The gap says how far below its tolerance a solver stops, which depends on the machine."""
    (prior,) = blocks(CHOOSING, kind="csv")
    Path("weeks.csv").write_text(prior.text)
    users = [user for user in range(1, 901) for _ in range(900 // user)]
    Path("clicks.csv").write_text("user,minutes\n" + "".join(f"u{user},{i % 41}\n" for i, user in enumerate(users)))
    commands = blocks(CHOOSING, kind="sh")
    assert len(commands) >= 4
    for block in commands:
        with subtests.test(block.text):
            assert block.shown is not None
            assert_same(page.run(block, "--processes=1"), block.shown, ("gap",))
    text = section_of(CHOOSING)
    job = re.search(r"--epsilon (\S+) --prior_epsilon (\S+) --mechanism\s+(\w+:\S+?)`", text)
    assert job is not None
    row = next(line.split() for line in text.splitlines() if line.split()[:2] == [job[1], job[3]])
    assert row[2] == job[2]


def test_the_demo(page: Runner) -> None:
    """Without what depends on the number of records: the verdict and its advice."""
    (shown,) = (block.text for block in blocks("README.md", kind="text") if block.text.startswith("Released "))
    printed = page.labeldp("labeldp demo --output=demo_output --clicks=60000")
    assert "warning" not in page.said
    details = re.compile(r"^Use  .*|^ +(?:For more|Features).*|, where .*", re.MULTILINE)
    assert words_of(details.sub("", printed)) == words_of(details.sub("", shown))


# Python.

EXAMPLES = [(name, number) for name, count in (("README.md", 1), (PYTHON, 7)) for number in range(count)]


class HuggingFace(ModuleType):
    """Stand-in for `datasets`, which is not installed: a data set whose iterator gives tables, of another size each."""

    def load_dataset(self, _: str, *, data_files: list[str], split: str) -> Any:
        assert split == "train"
        table = pa.concat_tables([pq.read_table(name) for name in data_files])
        tables = [table.slice(start, 1001) for start in range(0, len(table), 1001)]
        return SimpleNamespace(with_format=lambda _: SimpleNamespace(iter=lambda _: iter(tables)))


HUGGING_FACE = HuggingFace("datasets")


def write_weeks() -> None:
    """Writes log.csv and log-*.parquet, whose label `weeks` is between 0 and 52."""
    draws = np.random.default_rng(3)
    for name in ("log-1.parquet", "log-2.parquet", "log.csv"):
        table = pa.table({"age": draws.integers(18, 90, 3000), "weeks": draws.integers(0, 53, 3000)})
        (pyarrow.csv.write_csv if name.endswith(".csv") else pq.write_table)(table, name)


# Labels of 3,000 records at epsilon 1 have warnings for those who use them.
@pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
@pytest.mark.parametrize(("name", "number"), EXAMPLES)
def test_python_examples(name: str, number: int, page: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = blocks(name, kind="python")
    monkeypatch.setitem(sys.modules, "datasets", HUGGING_FACE)
    assert len(examples) == max(count for other, count in EXAMPLES if other == name) + 1
    write_weeks()
    page.run(examples[number])
    given = {"log-1.parquet", "log-2.parquet", "log.csv", "released_weeks"}
    made = {path.name for path in page.folder.iterdir()} - given
    code = examples[number].text
    if "PrivatizeFiles" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl", "released"}
        assert {"data", "mechanism.json", "release.json"} <= {path.name for path in Path("released").iterdir()}
    elif "LabelPrivatizer" in code or "labeldp.privatize" in code:
        assert made == {"noise.key", "labeldp_ledger.jsonl"}
    else:
        assert made == {"noise.key", "out"}
        assert len(list(Path("out").iterdir())) == 4


def test_side_inputs_that_batches_carry(page: Runner) -> None:
    """The lines of the guide to engines, in the pipeline of the guide to Python, write the same shards."""
    (code,) = (block.text for block in blocks(PYTHON, kind="python") if "ReleaseShards" in block.text)
    (lines,) = blocks(ENGINES, "Flink", "python")
    start, end = code.index("    records = "), code.index("    shards | ReleaseShards")
    carrying = code[:start] + textwrap.indent(lines.text, "    ") + code[end:]
    carrying = carrying.replace("import (", "import (\n    Carried,\n    DivideRows,").replace("key.create()", "")
    write_weeks()
    written = []
    for number, text in enumerate((code, carrying)):
        page.run(Block("", "python", "", text))
        written.append({path.name: path.read_bytes() for path in Path("out").iterdir()})
        Path("out").rename(f"out-{number}")
    assert written[0] == written[1]
    assert len(written[0]) == 4


# Features.


@pytest.mark.slow
def test_the_attack_on_features(page: Runner) -> None:
    """20,000 sales, of which 8 % were paid back; the invoice is the revenue with tax, up to rounding.

    Figures may depend on the CPU.
    """
    rng, rows = random.Random(3), ["order,visits,region,weekday,status,refund_code,invoice,profit,revenue"]
    for order in range(20_000):
        visits, region, weekday = rng.randint(1, 20), rng.choice(["north", "south", "west"]), rng.randint(0, 6)
        rise = {"north": 0.3, "south": 0.0, "west": -0.2}[region]
        revenue = round(np.exp(2.2 + 0.06 * visits + rise + 0.6 * rng.gauss(0, 1)), 2)
        returned = rng.random() < 0.08
        revenue = 0.0 if returned else revenue
        status, code = ("returned", rng.randint(1, 9)) if returned else (rng.choice(["open", "done"]), "")
        invoice, profit = round(revenue * 1.19 + rng.gauss(0, 0.05), 2), round(0.2 * revenue, 2)
        rows.append(f"{order},{visits},{region},{weekday},{status},{code},{invoice},{profit},{revenue}")
    Path("sales.csv").write_text("\n".join(rows) + "\n")
    (block,) = (block for block in blocks("docs/guides/attack.md", kind="sh") if "sales.csv" in block.text)
    printed = page.labeldp(block.text.replace("\\\n", " "), code=1)
    assert words_of(printed) == words_of(str(block.shown))
    # The eight percent, exactly, and the records in all.
    assert printed.count("determines 0.07955 of the labels") == 2
    assert "of 20,000 records, 6 features" in printed


@pytest.mark.slow
def test_private_features(page: Runner) -> None:
    random = np.random.default_rng(1)
    income = np.clip(np.rint(random.gamma(4, 15, 4000)), 0, 200)
    minutes = np.clip(np.rint(income / 10 + random.normal(5, 3, 4000)), 0, 40)
    users = [f"user {number}" for number in random.integers(0, 2500, 4000)]
    table = pa.table({"user": users, "hour": np.arange(4000) % 24, "income": income, "minutes": minutes})
    pq.write_table(table, "clicks.parquet")
    columns = {"released": ["hour", "minutes", "minutes_center"],
               "shuffled": ["hour", "income", "minutes", "minutes_center"],
               "both": ["hour", "income", "minutes", "minutes_center", "income_center"]}  # fmt: skip
    for block in blocks(PRIVATE, kind="sh"):
        page.run(block)
        folder = Path(block.text.split()[-1])
        page.labeldp(f"labeldp audit {folder} --data")
        assert pq.read_schema(next((folder / "data").iterdir())).names == columns.pop(folder.name)
        manifest = json.loads((folder / "release.json").read_text())
        assert "user" in manifest["left_out"]
        assert not [path for path in folder.rglob("*.*") if b"user 1" in path.read_bytes()]
        parts = [json.loads(path.read_text()) for path in folder.glob("labels/*/release.json")]
        assert not parts or sum(part["epsilon"] for part in parts) == pytest.approx(manifest["epsilon"])
        assert not any("minutes" in json.dumps(part.get("center", {}).get("linear")) for part in parts)
    assert not columns


# Tables.

FACTS_OF_RELEASE = {"epsilon": 1.0, "label": "weeks", "mechanism": "unbiased", "input_digest": "0f" * 32}
RECORDS = 3000


def people() -> pa.Table:
    random = np.random.default_rng(1)
    a, b = random.normal(0, 1, (2, RECORDS))
    weeks = np.clip(np.rint(20 + 5 * a + 3 * b + random.normal(0, 3, RECORDS)), 0, 52)
    return pa.table({"name": [f"user {i}" for i in range(RECORDS)], "a": a, "b": b, "weeks": weeks})


@pytest.fixture
def catalog(page: Runner, new_catalog: Any) -> Any:
    """The catalog `lake` of Iceberg with the namespace `ads`."""
    lake = new_catalog("lake", page.folder)
    lake.create_namespace("ads")
    yield lake
    if "catalog" in page.names:
        page.names["catalog"].close()


def write_shards() -> pa.Table:
    """Writes the records of a release in the folder `released`; returns them."""
    table = pa.table({"age": range(10), "weeks": [0.5] * 10})
    Path("released/data").mkdir(parents=True)
    for number in (0, 1):
        pq.write_table(table.slice(5 * number, 5), f"released/data/part-0000{number}-of-00002.parquet")
    Path("released/release.json").write_text(json.dumps(FACTS_OF_RELEASE))
    return table


def test_shards_are_added_to_an_iceberg_table(page: Runner, catalog: Any) -> None:
    released = write_shards()
    page.run(blocks("docs/guides/input_files.md", kind="python")[0])
    table = catalog.load_table("ads.released")
    assert table.scan().to_arrow().sort_by("age").equals(released)
    stated = dict(table.current_snapshot().summary.additional_properties)
    assert {f"labeldp.{name}": str(value) for name, value in FACTS_OF_RELEASE.items()}.items() <= stated.items()
    assert len(table.snapshots()) == 1


def test_shards_become_a_delta_table(page: Runner) -> None:
    deltalake = pytest.importorskip("deltalake")
    released = write_shards()
    page.run(blocks("docs/guides/input_files.md", kind="python")[1])
    table = deltalake.DeltaTable("clicks_released")
    assert table.to_pyarrow_table().sort_by("age").equals(released)
    (commit,) = table.history()
    assert {f"labeldp.{name}": str(value) for name, value in FACTS_OF_RELEASE.items()}.items() <= commit.items()
    assert not Path("released/data/_delta_log").exists()


# Erasure.

ERASURE = "Erasure and corrections"


def write_ids() -> None:
    """Names five of the records in the log."""
    Path("ids.txt").write_text("".join(f"user {place}\n" for place in (0, 5, 1499, 2222, 2999)))


def test_a_removal(page: Runner) -> None:
    write_ids()
    pq.write_table(people(), "log.parquet")
    page.labeldp(
        "labeldp privatize --input log.parquet --input_format parquet --label weeks --label_min 0 --label_max 52 "
        "--label_step 1 --epsilon 1 --center linear --id_column name --num_shards 3 --output released"
    )
    command = blocks(AUDITORS, ERASURE, "sh")[0]
    # Digests depend on the working folder, which is in the identities.
    printed = re.sub("digest [0-9a-f]{16}", "digest 93f4c0f9fd5dcdc3", page.run(command, "--removed_on=2026-01-31"))
    assert printed.replace("/home/you/labeldp/tutorial", "...") == command.shown
    page.labeldp("labeldp audit released2 --data")


def test_records_are_deleted_from_an_iceberg_table(page: Runner, catalog: Any) -> None:
    write_ids()
    made = catalog.create_table("ads.released", schema=people().schema)
    for part in range(2):
        made.append(people().slice(1500 * part, 1500))
    page.run(blocks(AUDITORS, ERASURE, "python")[0])
    table = catalog.load_table("ads.released")
    left = table.scan().to_arrow()["name"].to_pylist()
    assert len(left) == RECORDS - 5
    assert "user 1499" not in left
    assert len(table.metadata.snapshots) == 1


def test_records_are_deleted_from_a_delta_table(page: Runner) -> None:
    deltalake = pytest.importorskip("deltalake")
    write_ids()
    deltalake.write_deltalake("released_table", people())
    page.run(blocks(AUDITORS, ERASURE, "python")[1])
    left = [path for path in Path("released_table").rglob("*.parquet") if "_delta_log" not in path.parts]
    names = [name for path in left for name in pq.read_table(path)["name"].to_pylist()]
    assert len(names) == RECORDS - 5
    assert "user 1499" not in names


# Signed releases.


def test_a_signed_release(page: Runner) -> None:
    """labeldp takes the keys of the commands, and the program finds changes."""
    verification, keys, program = blocks(AUDITORS, "Signed releases")[0], *(
        block for block in blocks(AUDITORS, "Signed releases") if "genpkey" in block.text or block.kind == "python"
    )  # fmt: skip
    fingerprint = in_shell(keys.text).split()[0]
    Path("log.csv").write_text("f,y\n" + "".join(f"{i},{i % 5}\n" for i in range(500)))
    page.labeldp(
        "labeldp privatize --input=log.csv --input_format=csv --label=y --label_min=0 --label_max=4 --label_step=1 "
        "--epsilon=1 --for=labels --output=released --sign=sign.pem"
    )
    for signer in ("sign.pub", fingerprint, f"sha256:{fingerprint}"):
        printed = page.labeldp(f"labeldp audit released --signer={signer}")
    shown = re.sub("[0-9a-f]{64}", fingerprint, str(verification.shown))
    assert words_of(printed)[-2:] == words_of(shown)
    page.run(program)
    shard = next(Path("released/data").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(AssertionError):
        page.run(program)


# Claims.

CLAIMS = "Claim files"
CLAIM_FACTS = ROOT / "docs/examples/claim_facts.yaml"


def _without_records(text: str) -> list[str]:
    """Without the number of records, which depends on that of the clicks, and the last digits of what is certified."""
    return re.sub(r"(number_of_privacy_units: )\d+|(epsilon 0\.99999999)\d+", r"\1\2N", text).splitlines()


def test_the_claim_of_the_demo(page: Runner) -> None:
    page.labeldp("labeldp demo --output=demo_output --clicks=40000")
    page.labeldp(f"labeldp report demo_output/released --claim=claim.yaml --claim_facts={CLAIM_FACTS}")
    claim, guide = Path("claim.yaml").read_text(), section_of(AUDITORS, CLAIMS)
    (shown,) = blocks(AUDITORS, CLAIMS, "yaml")
    lines, expected = _without_records(claim), _without_records(shown.text)
    start = lines.index("  privacy_loss:")
    assert lines[start : start + len(expected)] == expected
    groups = yaml.safe_load(claim)["deployment"]
    assert f"has {sum(map(len, groups.values()))} fields" in guide

    Path("claim.yaml").write_text(claim.replace("epsilon: 1.0", "epsilon: 0.1"))
    check = "labeldp report demo_output/released --check_claim=claim.yaml"
    assert page.labeldp(check, code=1) == str(blocks(AUDITORS, CLAIMS, "yaml")[0].shown)
    Path("claim.yaml").write_text(claim)
    assert page.labeldp(check) == "claim      claim.yaml states this release\n"

    stated, _, deployer = guide.partition("## What the deployer states")
    rows = re.compile(r"^\| `(\w+)`(?:, `(\w+)`)*", re.MULTILINE)
    named = [
        name for line in deployer.partition("## Example")[0].splitlines() if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]  # fmt: skip
    assert named == [fact.name for fact in FACTS]
    assert [row[1] for row in rows.finditer(stated.partition("## What the release states")[2])] == list(groups)
    facts = {fact.name for fact in FACTS} - {"prior_origin", "center_origin"}
    assert set(yaml.safe_load(CLAIM_FACTS.read_text())) >= facts
    assert json.loads(Path("demo_output/released/release.json").read_text())["center"]["linear"]


# Schedulers, twice each, with stand-ins for modules.

DAY = "2026-11-25"
JOB = "input_format: parquet\nlabel: weeks\nlabel_min: 0\nlabel_max: 52\nlabel_step: 1\nepsilon: 1\nfor: labels\n"


class Dag:
    """Stand-in for a DAG of Airflow."""

    def __init__(self, name: str, **given: Any):
        assert given["catchup"] is False

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, *_: object) -> None:
        """Does nothing."""


def airflow(page: Runner, program: Block) -> Callable[[], str]:
    """Runs the task of the page."""
    tasks: list[SimpleNamespace] = []
    standard = "airflow.providers.standard"
    modules = {name: ModuleType(name) for name in ("airflow", "airflow.providers", standard, f"{standard}.operators")}
    operator = SimpleNamespace(BashOperator=lambda **given: tasks.append(SimpleNamespace(**given)))
    with pytest.MonkeyPatch.context() as patched:
        for name, module in {
            **modules,
            "pendulum": SimpleNamespace(datetime=lambda *day, tz: day),
            "airflow.sdk": SimpleNamespace(DAG=Dag),
            f"{standard}.operators.bash": operator,
        }.items():
            patched.setitem(sys.modules, name, module)
        page.run(program)
    (task,) = tasks
    command = here(jinja2.Template(task.bash_command).render(ds=DAY))
    return lambda: in_shell(command).splitlines()[-1]


def kubeflow(page: Runner, program: Block) -> Callable[[], str]:
    """Runs the container of the page."""
    dsl = SimpleNamespace(
        container_component=lambda function: function, OutputPath=lambda kind: kind, ContainerSpec=SimpleNamespace
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "kfp", SimpleNamespace(dsl=dsl))
        page.run(program)
    spec = page.names["release"](DAY, str(page.folder / "result"))
    command = here(" ".join(f"'{word}'" for word in spec.command + spec.args))
    return lambda: (in_shell(command), Path("result").read_text())[1]


def here(text: str) -> str:
    """A command of the page with the files of this machine."""
    return text.replace("/etc/labeldp/", f"{Path.cwd()}/").replace("/run/secrets/", f"{Path.cwd()}/")


def shell(page: Runner, block: Block) -> Callable[[], str]:
    """Runs the command of the page."""
    return lambda: (in_shell(block.text), Path("result.json").read_text())[1]


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "number"), [(shell, 0), (airflow, 1), (kubeflow, 3)])
def test_a_run_and_its_retry_are_one_release_and_one_charge(scheduler: Any, number: int, page: Runner) -> None:
    Path("logs", DAY).mkdir(parents=True)
    weeks = np.random.default_rng(1).integers(0, 53, 2000)
    pq.write_table(pa.table({"weeks": weeks}), f"logs/{DAY}/log.parquet")
    Path("job.yaml").write_text(JOB)
    Path("noise.key").write_bytes(bytes(range(32)))
    Path("noise.key").chmod(0o600)
    run = scheduler(page, blocks(ENGINES, "Schedulers")[number])
    first, again = json.loads(run()), json.loads(run())
    assert first["output"] == again["output"] == str(page.folder / "released" / DAY)
    assert (first["verified"], again["verified"]) == (False, True)
    assert first["records"] == 2000
    (ledger,) = Path("released").glob("*ledger.jsonl")
    assert len(ledger.read_text().splitlines()) == 1


def test_the_script_is_the_command(page: Runner) -> None:
    Path("labels.py").write_text(blocks(ENGINES, "Schedulers")[2].text)
    printed = in_shell(f"{sys.executable} labels.py --epsilon none 2>&1 || echo $?")
    error, code = printed.splitlines()
    assert error.startswith("labeldp privatize: error: ")
    assert code == "2"
