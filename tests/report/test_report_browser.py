"""The page in a browser: light and dark color scheme, printed, and at the width of a phone."""

import html
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labeldp import LabelPrivatizer, ReleaseWarning
from labeldp.report.charts import Line, lines_chart

BROWSERS = ("chromium", "google-chrome", "chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
    # Without it, a busy machine may take the picture before everything is painted.
    "--run-all-compositor-stages-before-draw",
)  # fmt: skip
# So high that the bar of the budget, below the verdict and its warnings, is in the picture.
WIDTH, HEIGHT = 1280, 1400
NARROW = 375
LIGHT, DARK = (255, 255, 255), (0x14, 0x17, 0x1B)


@dataclass(frozen=True)
class Seen:
    """A page as loaded by a browser: its document, the console messages, and the network requests."""

    dom: str
    console: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Seen]:
    """Function (page, more flags) -> the page as loaded by headless Chromium."""
    named = os.environ.get("CHROMIUM")
    browser = next(filter(None, map(shutil.which, [named] if named else BROWSERS)), "")
    if not browser:
        pytest.fail("no browser: run `make browser`, or name one in the environment variable CHROMIUM")

    def run(page: Path, *flags: str) -> Seen:
        scratch = tmp_path_factory.mktemp("browser")
        network = scratch / "network.json"
        places = (
            f"--user-data-dir={scratch / 'profile'}",
            f"--log-net-log={network}",
            f"--window-size={WIDTH},{HEIGHT}",
        )
        done = subprocess.run(
            [browser, *FLAGS, *places, *flags, "--dump-dom", page.as_uri()],
            check=True, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        asked = [event.get("params", {}) for event in json.loads(network.read_text())["events"]]
        # Requests of the browser itself have no origin.
        of_page = [p["url"] for p in asked if "url" in p and p.get("initiator", "not an origin") != "not an origin"]
        return Seen(done.stdout, console, of_page)

    return run


@pytest.fixture(scope="module")
def page_file(page_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browsed") / "page.html"
    path.write_text(page_text)
    return path


def colours(picture: Path) -> Counter[tuple[int, int, int]]:
    image_module: Any = pytest.importorskip("PIL.Image")
    with image_module.open(picture) as image:
        assert image.size == (WIDTH, HEIGHT)
        return Counter({colour: count for count, colour in image.convert("RGB").getcolors(1 << 24)})


def test_a_browser_shows_it_light_and_on_paper(
    page_file: Path, page: Any, read_page: Any, browse: Any, tmp_path: Path
) -> None:
    picture, paper = tmp_path / "light.png", tmp_path / "page.pdf"
    seen = browse(page_file, f"--screenshot={picture}", f"--print-to-pdf={paper}")

    assert (seen.console, seen.requests) == ([], [])
    shown = read_page(seen.dom)
    assert shown.text == page.text
    assert shown.tables == page.tables
    found = colours(picture)
    assert found.most_common(1)[0][0] == LIGHT
    assert found[(0, 0x72, 0xB2)] > 100  # the histogram's share of the budget
    assert found[(0xD0, 0x50, 0x0A)] > 100  # the share of the labels
    assert paper.read_bytes().startswith(b"%PDF-")
    assert paper.stat().st_size > 20_000


def test_a_browser_shows_it_dark(page_file: Path, browse: Any, tmp_path: Path) -> None:
    picture = tmp_path / "dark.png"
    seen = browse(page_file, f"--screenshot={picture}", "--blink-settings=preferredColorScheme=0")

    assert seen.console == []
    found = colours(picture)
    assert found.most_common(1)[0][0] == DARK
    assert found[LIGHT] == 0
    assert found[(0x56, 0xB4, 0xE9)] > 100


@pytest.mark.parametrize(("scheme", "ground", "line"), [(1, LIGHT, (0, 0x72, 0xB2)), (0, DARK, (0x56, 0xB4, 0xE9))])
def test_a_browser_shows_a_picture_of_its_own(
    scheme: int, ground: tuple[int, int, int], line: tuple[int, int, int], browse: Any, tmp_path: Path
) -> None:
    drawn = lines_chart([Line("a line", [1, 2, 4], [1.0, 2.0, 2.0])], "A title", "across", "up", file=True)
    (tmp_path / "picture.svg").write_text(drawn)
    shown = tmp_path / "shown.png"
    seen = browse(tmp_path / "picture.svg", f"--screenshot={shown}", f"--blink-settings=preferredColorScheme={scheme}")

    assert (seen.console, seen.requests) == ([], [])
    found = colours(shown)
    assert found.most_common(1)[0][0] == ground
    assert found[line] > 100


@pytest.fixture(scope="module")
def classes_text(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> str:
    """Page on 30 classes with long names, which have no space to break at."""
    folder = tmp_path_factory.mktemp("classes")
    names = [f"{'x' * 60}{place}" for place in range(30)]
    privatizer = LabelPrivatizer(
        label_classes=names, mechanism="rr", epsilon=3, noise_key_file=key_file, ledger=folder / "ledger.jsonl"
    )
    with pytest.warns(ReleaseWarning):
        privatizer.fit_transform(names * 50)
    privatizer.report(folder / "page.html")
    return (folder / "page.html").read_text()


@pytest.mark.parametrize("text", ["page_text", "classes_text"])
def test_nothing_is_wider_than_a_telephone(
    text: str, request: pytest.FixtureRequest, browse: Any, tmp_path: Path
) -> None:
    """An enclosing page measures the widths, because the report itself runs no script."""
    page_text = request.getfixturevalue(text)
    (tmp_path / "around.html").write_text(
        f'<!DOCTYPE html><iframe style="width:{NARROW}px;border:0" srcdoc="{html.escape(page_text)}"></iframe>'
        "<output></output><script>onload = () => {"
        "const root = document.querySelector('iframe').contentDocument.documentElement;"
        "const inside = [...root.querySelectorAll('body *')].filter(e => !e.closest('svg'));"
        "const widest = Math.max(...inside.map(e => e.getBoundingClientRect().right));"
        "document.querySelector('output').textContent = [root.scrollWidth, widest, inside.length].join(' ');"
        "}</script>"
    )
    seen = browse(tmp_path / "around.html")
    assert 'class="numbers stack"' in page_text

    measured = re.search(r"<output>([\d. ]+)</output>", seen.dom)
    assert measured is not None
    scroll_width, widest, elements = map(float, measured[1].split())
    assert elements > 50
    assert scroll_width <= NARROW
    assert widest <= NARROW


def test_the_browser_would_tell(browse: Any, tmp_path: Path) -> None:
    """`browse` reports console errors and network requests."""
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><img src="http://192.0.2.1/a.png"><script>console.error("wrong")</script>'
    )
    seen = browse(tmp_path / "bad.html")

    assert any("wrong" in line for line in seen.console)
    assert set(seen.requests) == {"http://192.0.2.1/a.png"}
