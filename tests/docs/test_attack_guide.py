"""The guide of `labeldp attack` shows what the command prints of a log of sales. Figures may depend on the CPU."""

import math
import random
import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "attack.md"


def sales() -> list[str]:
    """20,000 sales, of which 8 % were paid back; the invoice is the revenue with tax, up to rounding."""
    rng, rows = random.Random(3), []
    for order in range(20_000):
        visits, region, weekday = rng.randint(1, 20), rng.choice(["north", "south", "west"]), rng.randint(0, 6)
        rise = {"north": 0.3, "south": 0.0, "west": -0.2}[region]
        revenue = round(math.exp(2.2 + 0.06 * visits + rise + 0.6 * rng.gauss(0, 1)), 2)
        returned = rng.random() < 0.08
        revenue = 0.0 if returned else revenue
        status, code = ("returned", rng.randint(1, 9)) if returned else (rng.choice(["open", "done"]), "")
        invoice, profit = round(revenue * 1.19 + rng.gauss(0, 0.05), 2), round(0.2 * revenue, 2)
        rows.append(f"{order},{visits},{region},{weekday},{status},{code},{invoice},{profit},{revenue}")
    return rows


def test_the_guide_shows_what_is_printed(run_labeldp: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (shown,) = re.findall(r"--id_column order\n```\n\n```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    header = "order,visits,region,weekday,status,refund_code,invoice,profit,revenue"
    (tmp_path / "sales.csv").write_text("\n".join([header, *sales()]) + "\n")
    flags = "--features --input sales.csv --input_format csv --label revenue --exclude profit --id_column order"
    code = run_labeldp(["attack", *flags.split()])

    number, printed = r"-?\d[\d.]*(e-\d+)?", capsys.readouterr().out
    assert code == 1
    assert re.sub(number, "N", printed) == re.sub(number, "N", shown)
    # The eight percent, exactly, and the records in all.
    assert printed.count("determines 0.07955 of the labels") == 2
    assert "of 20,000 records, 6 features" in printed
