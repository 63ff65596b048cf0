"""Both pages in a real browser: everything drawn, every control works, nothing from outside.

Needs Debian's chromium (or CHROMIUM=/path/to/it) and playwright, see `make test-integrations`.
Screenshots are kept in the folder SCREENSHOTS names, or else among pytest's temporary files.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from advice.config import EnvConfig, ShieldConfig, TrainConfig
from advice.reports.page import write_report
from advice.reports.replay_page import write_replay
from reports.driven import drive
from reports.made_up import write_grid, write_run

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    assert path, "no Chromium found: apt install chromium, or set CHROMIUM=/path/to/it"
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of invented runs with two studies, and two real runs with actions and a shield."""
    root = tmp_path_factory.mktemp("grid")
    write_grid(root / "core", episodes=400, construction=200, seeds=range(5))
    base = TrainConfig(
        task="randomised-goal", episodes=400, shield=ShieldConfig(construction_episodes=200)
    )
    for k in (3, 5):
        fixed = dataclasses.replace(base.shield, k=k, k_rule="fixed")
        write_run(root / f"fixed-k-{k}", dataclasses.replace(base, seed=k, shield=fixed))
    long = dataclasses.replace(base, env=EnvConfig(max_episode_steps=2000))
    write_run(root / "long-episodes", long)
    write_run(root / "core", dataclasses.replace(base, seed=9, episodes=77))
    for method in ("ddpg", "advice"):
        drive(root, method)
    return write_report([root], root / "report", any_version=True).page


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = drive(tmp_path_factory.mktemp("driven"))
    busy = max(folder.read_episodes(), key=lambda record: record.interventions).episode
    page = folder.path / "replay.html"
    return write_replay(folder.path, page, busy, counterfactual=True).page


class OpenPage:
    """An open page that records console messages, errors and network requests."""

    def __init__(self, browser: Browser, path: Path, size: str = "desktop", scheme: str = "light"):
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self.page: Page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.url = path.resolve().as_uri()
        self.page.goto(self.url)

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.context.close()
        if kind is None:
            assert self.messages == []
            assert [url for url in self.requests if not url.startswith("data:")] == [self.url]


def ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def undrawn(page: Page) -> list[str]:
    """Visible figures without a sizeable picture that has something in it."""
    return list(
        page.evaluate(
            """() => [...document.querySelectorAll("figure")]
              .filter((figure) => figure.offsetParent !== null)
              .filter((figure) => {
                const svg = figure.querySelector("svg"), box = svg && svg.getBoundingClientRect();
                const shapes = svg ? [...svg.querySelectorAll("path, use, image")] : [];
                const seen = shapes.filter((shape) => shape.getBoundingClientRect().width > 1);
                return !svg || box.width < 200 || box.height < 80 || seen.length < 5;
              }).map((figure) => figure.id)"""
        )
    )


def too_wide(page: Page) -> int:
    """How far the page reaches beyond the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_drawn(
    browser: Browser, report: Path, screenshots: Path, size: str, scheme: str
) -> None:
    with OpenPage(browser, report, size, scheme) as page:
        page.screenshot(path=screenshots / f"report-{size}-{scheme}.png", full_page=True)
        assert undrawn(page) == []
        assert too_wide(page) <= 0
        assert page.locator("figure:visible").count() >= 9
        page.click("#controls button[data-phase=full]")
        assert undrawn(page) == []
        dark = sum(int(x) for x in ground(page)[4:-1].split(",")) < 150
        assert dark == (scheme == "dark")


def test_the_reports_controls(browser: Browser, report: Path) -> None:
    with OpenPage(browser, report) as page:
        full = page.locator("#figure-randomised-goal-overview-full")
        after = page.locator("#figure-randomised-goal-overview-after")
        assert (after.is_visible(), full.is_visible()) == (True, False)
        page.click("#controls button[data-phase=full]")
        assert (after.is_visible(), full.is_visible()) == (False, True)
        assert page.get_attribute("#controls button[data-phase=full]", "aria-pressed") == "true"

        line = full.locator(".series-advice").first
        other = full.locator(".series-ddpg").first
        assert line.is_visible()
        page.uncheck("#controls input[data-series=series-advice]")
        assert not line.is_visible()
        assert other.is_visible()
        page.check("#controls input[data-series=series-advice]")
        assert line.is_visible()

        before = ground(page)
        page.click("#theme")
        assert ground(page) != before
        page.click("#theme")
        assert ground(page) == before


def test_the_report_says_what_it_found(browser: Browser, report: Path) -> None:
    with OpenPage(browser, report) as page:
        claims = page.locator("#claims").inner_text()
        assert "fewer violations than the best other method" in claims
        assert "too few seeds" in claims
        assert "episodes is 77, elsewhere 400" in page.locator("#left-out").inner_text()


def test_the_report_prints(browser: Browser, report: Path, screenshots: Path) -> None:
    with OpenPage(browser, report) as page:
        page.emulate_media(media="print")
        assert not page.locator("#controls").is_visible()
        for phase in ("full", "after"):  # paper has no buttons: both are there
            assert page.locator(f"#figure-randomised-goal-overview-{phase}").is_visible()
        page.pdf(path=screenshots / "report.pdf", format="A4")
        assert (screenshots / "report.pdf").stat().st_size > 20_000


def picture(page: Page, name: str) -> str:
    return str(page.evaluate(f"document.getElementById('{name}').toDataURL()"))


def colours(page: Page, name: str) -> int:
    """How many different colours a canvas shows."""
    return int(
        page.evaluate(
            f"""() => {{ const canvas = document.getElementById("{name}");
              const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              return new Set(new Uint32Array(data.data.buffer)).size; }}"""
        )
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_replay_is_drawn(
    browser: Browser, replay: Path, screenshots: Path, size: str, scheme: str
) -> None:
    with OpenPage(browser, replay, size, scheme) as page:
        page.click("#next")
        page.screenshot(path=screenshots / f"replay-{size}-{scheme}.png", full_page=True)
        for name in ("arena", "actions", "latent", "lidar", "strip"):
            assert colours(page, name) > 3
        assert too_wide(page) <= 0


def test_the_replays_controls(browser: Browser, replay: Path) -> None:
    names = ("arena", "actions", "latent", "lidar")
    with OpenPage(browser, replay) as page:
        last = int(page.get_attribute("#slider", "max") or 0)
        assert last > 5
        first = {name: picture(page, name) for name in names}
        page.fill("#slider", str(last // 2))
        assert page.locator("#where").inner_text() == f"step {last // 2} of {last}"
        assert all(picture(page, name) != first[name] for name in names)
        page.click("#forth")
        page.click("#forth")
        page.click("#back")
        assert page.input_value("#slider") == str(last // 2 + 1)

        page.click("#next")
        assert "replaced" in page.locator("#says").inner_text()
        assert "refused action" in page.locator("#says").inner_text()
        votes = picture(page, "actions")
        page.click("#shade")
        assert picture(page, "actions") != votes
        assert "rated higher" in page.locator("#shade-key").inner_text()
        above = picture(page, "arena")
        page.uncheck("#rings")
        assert picture(page, "arena") != above

        page.fill("#slider", "0")
        page.select_option("#speed", "4")
        page.click("#play")
        page.wait_for_function("Number(document.getElementById('slider').value) > 2")
        page.wait_for_function("document.getElementById('play').textContent === 'Play'")
        assert page.input_value("#slider") == str(last)
        assert "The end" in page.locator("#says").inner_text()

        before, above = ground(page), picture(page, "arena")
        page.click("#theme")
        assert ground(page) != before
        assert picture(page, "arena") != above
