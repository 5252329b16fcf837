"""Reports in a real browser: nothing is fetched, nothing cut off, everything can be read, on any screen and on paper.

Needs Chromium on the path (Debian: apt install chromium) and the package playwright; skipped where one is missing.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_crew import made_up_crew, made_up_figures, new_recording, recorded_proofs

from streamsvm import load_settings, train, tune
from streamsvm.model import load_model
from streamsvm.report.story import Story
from streamsvm.report.writing import write_report

pytest.importorskip("matplotlib", reason="a report needs matplotlib")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

DATA = Path(__file__).parents[1] / "examples/data"
WIDTHS = (360, 768, 1280)
LONG = "a name without any blank that goes on_" + "and_on" * 30

# What the eye would see: colours of texts and of what is behind them, as 0..255, and the size of letters on the screen.
TEXTS = """() => {
  const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true}), known = new Map();
  const parsed = color => { if (!known.has(color)) {
      c.clearRect(0, 0, 1, 1); c.fillStyle = color; c.fillRect(0, 0, 1, 1);
      known.set(color, [...c.getImageData(0, 0, 1, 1).data]); }
    return known.get(color); };
  const over = (top, below) => top.slice(0, 3).map((v, k) => v * top[3] / 255 + below[k] * (1 - top[3] / 255));
  const behind = node => { const above = []; for (let at = node; at; at = at.parentElement) above.push(at);
    return above.reverse().reduce((color, at) => over(parsed(getComputedStyle(at).backgroundColor), color),
      [255, 255, 255]); };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    if (node.closest('script,style,details:not([open]) > :not(summary)')) continue;
    const inside = [...node.childNodes].filter(child => child.nodeType === 3);
    const own = inside.map(child => child.data.trim()).filter(text => text);
    const box = node.getBoundingClientRect();
    if (!own.length || !box.width || !box.height) continue;
    const style = getComputedStyle(node), svg = node.closest('figure > svg');
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const below = behind(node.closest('figure') || node);
    found.push({text: own.join(' '), ink: over(parsed(svg ? style.fill : style.color), below), paper: below,
      size: parseFloat(style.fontSize) * scale});
  }
  return found; }"""

OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(node => {
  if (node.closest('.scroll, pre, script, style, figure > svg *, details:not([open]) > :not(summary)')
      && !node.matches('.scroll, pre')) return false;
  const box = node.getBoundingClientRect();
  return box.width && (box.right > document.documentElement.clientWidth + 1 || box.left < -1);
}).map(node => node.outerHTML.slice(0, 200))"""

PICTURES = """() => [...document.querySelectorAll('figure > svg')].map(svg => { const box = svg.getBoundingClientRect();
  const lines = [...svg.querySelectorAll('path, use')].map(part => part.getBoundingClientRect());
  return {label: svg.getAttribute('aria-label'), width: box.width, height: box.height, left: box.left,
    right: box.right, parts: lines.filter(part => part.width + part.height > 1).length,
    cut: [...svg.querySelectorAll('text')].filter(text => { const at = text.getBoundingClientRect();
      return at.left < box.left - 4 || at.right > box.right + 12 || at.bottom > box.bottom + 2; })
      .map(text => text.textContent)}; })"""


class Pages(dict[str, Path]):
    """A report of each kind, made when a test first asks for it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def __missing__(self, name: str) -> Path:
        page = self.place / f"{name}.html"
        if name in CREWS:
            assert self["names"].exists()  # whose model it is
            _report_of_cluster(page, CREWS[name], str(self.place / "names.st"))
        else:
            run, wishes = self.run_of(name)
            output = {"output.report": str(page), "output.model": str(self.place / f"{name}.st")}
            run(load_settings(overrides={**wishes, **output}))
        self[name] = page
        return page

    def run_of(self, name: str) -> tuple[Any, dict[str, object]]:
        a9a, digits = DATA / "a9a.train.svm.gz", DATA / "digits.train.svm.gz"
        table = self.place / "t.csv"
        lines = [f"{LONG if k % 3 else '<b>'},{k % 7},{('x' * (k % 40))}" for k in range(3000)]
        table.write_text("\n".join(["label,number,word", *lines]) + "\n")
        runs: dict[str, tuple[Any, dict[str, object]]] = {
            "online": (train, {"data.train": str(a9a), "data.test": str(DATA / "a9a.test.svm.gz"), "solver.passes": 2}),
            "proof": (train, {"data.train": str(digits), "data.test": str(digits), "solver.name": "dcd"}),
            "tune": (tune, {"data.train": str(a9a), "tune.candidates": 4, "solver.passes": 2}),
            "names": (train, {"data.train": str(table), "data.label": "label", "features.names": True}),
        }
        return runs[name]


CREWS = {"few workers": 5, "many workers": 256}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return Pages(tmp_path_factory.mktemp("reports"))


def _report_of_cluster(place: Path, count: int, model: str) -> None:
    """The report of a run on a cluster that might have been; tests/distributed has one that was."""
    record, recording = made_up_crew(count, lost=2), new_recording()
    recording.crew = record
    recorded_proofs(recording, 30, 120_000_000)
    result = {"examples": 5000, "seconds": 50.0, "gap": 0.01, "objective": 0.4, "dual": 0.396, "tol": 1e-2}
    result |= {"loss": 0.3, "error": 0.1, "cluster": made_up_figures(record, 30, 120_000_000)}
    settings = load_settings(overrides={"data.train": "rows.svm", "solver": "dcd"})
    write_report(str(place), Story("train", settings, load_model(model), model, model, result, recording, None), print)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def contrast(one: list[float], other: list[float]) -> float:
    """As WCAG 2 has it: 1 to 21."""

    def light(colour: list[float]) -> float:
        parts = [value / 255 for value in colour]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    "name",
    [
        "online",
        "names",
        "few workers",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("proof", "tune", "many workers")),
    ],
)
def test_a_page_is_whole_on_every_screen(browser: Any, pages: dict[str, Path], name: str) -> None:
    opened = browser.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: said.append(request.url) if request.url != address else None)
    address = pages[name].as_uri()
    opened.goto(address)
    assert opened.evaluate("document.querySelectorAll('figure > svg').length") >= (2 if name == "names" else 6)
    for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "dark")):
        opened.emulate_media(media=media, color_scheme=scheme)
        for width in WIDTHS if media == "screen" else (720,):
            opened.set_viewport_size({"width": width, "height": 800})
            where = f"{name} {media} {scheme} {width}"
            over = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0 and opened.evaluate(OUTSIDE) == [], where
            for picture in opened.evaluate(PICTURES):
                assert picture["width"] >= 250 and picture["height"] >= 120 and picture["parts"] >= 2, (where, picture)
                assert picture["cut"] == [] and len(picture["label"]) > 20, (where, picture)
            texts = opened.evaluate(TEXTS)
            assert len(texts) > 60
            for text in texts:
                assert contrast(text["ink"], text["paper"]) >= 4.5, (where, text)
                assert text["size"] >= (8.5 if width == 360 else 9.0), (where, text)
            paper = contrast(texts[0]["paper"], [255, 255, 255])
            assert (paper > 10.0) == (media == "screen" and scheme == "dark"), where
    assert said == []
    opened.close()


def test_paper_has_all_pictures_and_cuts_none(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    opened = browser.new_page()
    opened.goto(pages["online"].as_uri())
    opened.emulate_media(media="print")
    kept = opened.evaluate("[...document.querySelectorAll('figure')].map(one => getComputedStyle(one).breakInside)")
    assert set(kept) == {"avoid"}
    assert opened.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    printed = opened.pdf(path=tmp_path / "r.pdf", format="A4")
    assert printed.startswith(b"%PDF") and len(printed) > 20_000
    opened.close()


def test_programs_find_the_numbers_in_the_page(browser: Any, pages: dict[str, Path]) -> None:
    opened = browser.new_page()
    opened.goto(pages["online"].as_uri())
    data = opened.evaluate("JSON.parse(document.getElementById('data').textContent)")
    assert data["command"] == "train" and len(data["judged"]["shapes"]["curves"]["1"]["recall"]) > 100
    assert data["history"]["examples"][-1] == 2 * 32561
    opened.close()


def test_workers_have_their_chapter(browser: Any, pages: dict[str, Path]) -> None:
    opened = browser.new_page()
    for name, shown in (("few workers", 7), ("many workers", 6)):
        opened.goto(pages[name].as_uri())
        assert opened.evaluate("document.querySelectorAll('#workers figure > svg').length") == 4
        rows = "[...document.querySelectorAll('#workers tbody tr')].filter(row => row.checkVisibility())"
        assert opened.evaluate(f"{rows}.length") == shown
    opened.click("#workers summary")
    assert opened.evaluate(f"{rows}.length") == 6 + 258
    opened.close()
