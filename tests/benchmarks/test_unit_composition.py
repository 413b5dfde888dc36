"""Tables and examples of docs/guides/units_composition.md."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "units_composition.md").read_text()


def table_of(mechanism: str) -> list[str]:
    return PAGE.split(f"### {mechanism}\n")[1].split("### ")[0].split("<!--")[0].strip().splitlines()


@pytest.mark.parametrize("mechanism", ["rr_on_bins", "unbiased", "rr"])
@pytest.mark.parametrize(("epsilon", "delta", "records"), [(1.0, 1e-6, 2), (4.0, 1e-9, 10), (4.0, 1e-6, 50)])
def test_rows_are_current(benchmark: Any, mechanism: str, epsilon: float, delta: float, records: int) -> None:
    assert benchmark("unit_composition").row(mechanism, epsilon, delta, records).line() in table_of(mechanism)


@pytest.mark.parametrize("mechanism", ["rr_on_bins", "unbiased", "rr"])
def test_tables_are_complete_and_monotone(mechanism: str) -> None:
    cells = [[float(cell) for cell in line.strip("| ").split("|")] for line in table_of(mechanism)[2:]]
    assert len(cells) == 20
    for row in cells:
        adding_up, closed, own = row[3:6]
        assert adding_up <= closed <= own <= row[0]
        assert row[6] >= row[7] >= row[8]
    for before, after in pairwise(cells):
        if before[:2] == after[:2]:
            assert before[2] < after[2]
            assert all(one >= two for one, two in zip(before[3:6], after[3:6], strict=True))


def test_gaussian_noise_is_that_of_the_page() -> None:
    """63 is the distance of the labels' ends, so M labels of a unit have a distance of 63 sqrt(M)."""
    sigma = 63 * dp_accounting.get_sigma_gaussian(4, 1e-6)
    found = re.search(r"standard deviation of (\d+) at\s+M = 10 and (\d+) at M = 50", PAGE)
    assert found is not None
    assert [round(sigma * records**0.5) for records in (10, 50)] == [int(each) for each in found.groups()]


def test_the_program_renews_a_page(benchmark: Any, tmp_path: Path) -> None:
    program = benchmark("unit_composition")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{program.BEGIN}\nold\n{program.END}\nafter\n")
    program.main(["--mechanism", "rr_on_bins", "--records", "2", "--page", str(page)])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("\n| ") == 1 + 4


def test_the_example_prints_what_the_page_says() -> None:
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert printed.getvalue() == output
