"""Every page of the dashboard in headless Chromium, against a cluster of two nodes that runs real work.

Screenshots go to build/screenshots. Skipped, with a word, where there is no chromium and chromedriver.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cluster_utils import Cluster
from weft.data.board import DataBoard
from weft.data.running import Report
from weft.data.statistics import Statistics
from weft.train.board import TrainBoard
from weft.util import board
from weft.util.placement_group import placement_group

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="chromium and chromedriver are not installed (apt-get install chromium-driver)",
)
SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=window.hacked=1>"
UNNAMED = """return [...document.querySelectorAll("button, a, input, select")].filter((one) =>
    !(one.innerText || one.ariaLabel || one.labels?.length || one.title)).length"""
CELLS = "[...document.querySelectorAll('td')].map((one) => one.innerText)"
COLOURS = """const behind = (one) => getComputedStyle(one).backgroundColor;
    const places = [document.body, document.documentElement].map(behind);
    return [getComputedStyle(document.querySelector("main")).color, places.find((one) => one !== "rgba(0, 0, 0, 0)")]"""
PAGES = {
    "": "2 of ",
    "stream": "Counter.add",
    "graph": "The same as a table",
    "tasks": "Counter.add",
    "actors": "Counter",
    "objects": "1.0 MiB",
    "jobs": str(os.getpid()),
    "groups": "pair",
    "logs": "needle",
    "errors": "ValueError",
    "profile": "flame graph",
    "tune": "learning",
    "rl": "steps/s",
    "train": "checkpoint_000001",
    "data": "map(double)",
    "serve": "default:Model#1",
}


@weft.remote(num_cpus=0.1)
def double(value: int) -> int:
    print(f"needle {value} \x1b[31m{HOSTILE}")
    return 2 * value


@weft.remote(num_cpus=0.1)
def fails() -> None:
    raise ValueError(HOSTILE)


@weft.remote(num_cpus=0.1)
class Counter:
    def add(self, value: int) -> int:
        return value


class Browser:
    """Chromium at the dashboard of the running cluster."""

    def __init__(self, url: str, address: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1400,1000",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.address = address
        self.driver.get(url)
        SHOTS.mkdir(parents=True, exist_ok=True)

    def open(self, page: str) -> None:
        self.driver.get(f"{self.address}/#/{page}")
        self.wait(lambda: self.run("return document.querySelector('main').dataset.page") == page, page)

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def wait(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 30
        tick = threading.Event()
        while not holds():
            assert time.monotonic() < deadline, f"{what} does not come; the page says: {self.text()[:2000]}"
            tick.wait(0.1)

    def number(self, name: str) -> int:
        return int(self.run(f"return document.querySelector('[data-test={name}]').innerText").replace(",", ""))

    def problems(self) -> list[str]:
        """What the browser complained about, but for nodes that are gone."""
        return [row["message"] for row in self.driver.get_log("browser") if row["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        made.add_node(num_cpus=2, resources={"there": 1})
        weft.init(address=made.address)
        yield made
    finally:
        weft.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def browser(cluster: Cluster) -> Iterator[Browser]:
    url = weft.init(address=cluster.address, ignore_reinit_error=True).dashboard_url
    assert url is not None
    opened = Browser(url, url.partition("/?")[0])
    try:
        yield opened
    finally:
        opened.driver.quit()


@pytest.fixture(scope="module")
def work(cluster: Cluster) -> Iterator[list[Any]]:
    """Something for each page to show."""
    counter = Counter.options(name="counted").remote()
    kept: list[Any] = [counter, weft.put(b"x" * (1 << 20)), placement_group([{"CPU": 0.1}], name="pair")]
    assert weft.get(double.remote(double.remote(1))) == 4
    assert weft.get(double.options(resources={"there": 0.1}).remote(4)) == 8
    assert weft.get([counter.add.remote(1), counter.add.remote(2)]) == [1, 2]
    with pytest.raises(ValueError, match="img"):
        weft.get(fails.options(name=HOSTILE).remote())
    trial = {
        "id": "t1",
        "state": "RUNNING",
        "config": {"lr": 0.1},
        "best": 0.5,
        "iterations": 2,
        "seconds": 1.0,
        "error": "",
    }
    board.publish(
        "tune", "learning", {"metric": "loss", "mode": "min", "trials": [{**trial, "curve": [[1, 0.9], [2, 0.5]]}]}
    )
    run = {"algorithm": "PPO", "environment": "CartPole-v1", "steps": 10, "steps_per_second": 5.0}
    board.publish("rl", "run", {**run, "rewards": [[0, 1], [10, 5]], "throughput": [[0, 4], [10, 5]]})
    publish_of_libraries()
    yield kept
    for page, name in (("tune", "learning"), ("rl", "run"), ("train", "fit"), ("serve", "applications")):
        board.withdraw(page, name)


def publish_of_libraries() -> None:
    """A training and a dataset as their own boards tell of them, and an application as the controller's does."""
    training = TrainBoard("fit", "torch", "/results/fit")
    training.began(["a" * 32, "b" * 32])
    for number in range(1, 20):
        training.reported({"loss": 1 / number, "epoch": number, "note": HOSTILE}, f"checkpoint_{number:06}")
    training.ended(None)
    statistics = Statistics()
    shown = DataBoard(64 << 20)
    for number in range(5):
        statistics.add("map(double)", Report(1000, 8000, None, 0.1, (), {}, (), (), {}))  # type: ignore[arg-type]
        statistics.held(number << 20, 2)
        shown._next_s = 0.0
        shown.tell(statistics)
    replica = {"state": "RUNNING", "ongoing": 2, "served": 900, "p50_s": 0.002, "p95_s": 0.01, "p99_s": 0.05}
    now_s = time.time()
    deployment = {
        "name": "Model",
        "status": "HEALTHY",
        "message": "",
        "target": 2,
        "waiting": 3,
        "ongoing": 4,
        "limit": 100,
        "requests_per_s": 451.5,
        "replicas": [{"id": f"default:Model#{number}", **replica} for number in (1, 2)],
        "rate": [[now_s - 10 + at, 400 + 10 * at] for at in range(10)],
        "p95": [[now_s - 10 + at, 0.01 + at / 1000] for at in range(10)],
    }
    application = {"name": "default", "route_prefix": "/", "deployments": [deployment]}
    board.publish("serve", "applications", {"applications": [application]})


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_and_shows_what_there_is(browser: Browser, work: list[Any], page: str) -> None:
    browser.open(page)
    browser.wait(lambda: PAGES[page] in browser.text(), PAGES[page])
    browser.driver.save_screenshot(str(SHOTS / f"{page or 'cluster'}.png"))
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('main img').length") == 0
    assert browser.problems() == []


def test_the_numbers_are_right_and_renew_themselves(browser: Browser, work: list[Any]) -> None:
    browser.open("")
    browser.wait(lambda: "2 of 2" in browser.text(), "2 of 2 nodes")
    browser.wait(lambda: browser.number("actors") == 1, "one actor")
    before = browser.number("tasks-run")
    weft.get([double.remote(number) for number in range(50)])
    browser.wait(lambda: browser.number("tasks-run") == before + 50, "50 more tasks")


def test_a_driver_is_listed_once_however_many_nodes_know_it(browser: Browser, work: list[Any]) -> None:
    browser.open("jobs")
    browser.wait(lambda: browser.run(f"return {CELLS}.filter((one) => one === 'worker').length"), "workers")
    assert browser.run(f"return {CELLS}.filter((one) => one === 'driver').length") == 1


def test_the_stream_and_the_graph_have_the_tasks(browser: Browser, work: list[Any]) -> None:
    browser.open("stream")
    browser.wait(lambda: "double" in browser.text() and "Counter.add" in browser.text(), "the functions")
    assert browser.run("return document.querySelectorAll('main canvas').length") >= 1
    browser.open("graph")
    browser.run("document.querySelector('details').open = true")
    browser.wait(lambda: all(kind in browser.text() for kind in ("data", "state", "double", "Counter.add")), "edges")


def test_logs_are_searched_as_one_types(browser: Browser, work: list[Any]) -> None:
    browser.open("logs")
    browser.wait(lambda: "needle 1" in browser.text(), "the lines")
    search = browser.driver.find_element("css selector", "input[type=search]")
    search.send_keys("needle 2")
    browser.wait(lambda: "needle 2" in browser.text() and "needle 1 " not in browser.text(), "only what fits")
    assert "\x1b" not in browser.text() and HOSTILE in browser.text()


def test_keys_the_theme_and_a_phone(browser: Browser, work: list[Any]) -> None:
    browser.open("")
    body = browser.driver.find_element("css selector", "body")
    body.send_keys("2")
    browser.wait(lambda: browser.driver.current_url.endswith("#/stream"), "the second page")
    before = browser.run("return document.documentElement.dataset.theme")
    browser.driver.find_element("css selector", "header.top button").click()
    browser.wait(lambda: browser.run("return document.documentElement.dataset.theme") != before, "the other theme")
    browser.driver.save_screenshot(str(SHOTS / "stream-other-theme.png"))
    browser.driver.set_window_size(420, 900)
    for page in PAGES:
        browser.open(page)
        browser.wait(lambda page=page: PAGES[page] in browser.text(), page)  # type: ignore[misc]
        width = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 1, f"{page} is wider than a phone by {width}"
        browser.driver.save_screenshot(str(SHOTS / f"phone-{page or 'cluster'}.png"))
    browser.driver.set_window_size(1400, 1000)


def test_what_is_not_text_has_words_for_a_screen_reader(browser: Browser, work: list[Any]) -> None:
    for page in ("", "stream", "graph", "tune", "rl", "train", "data", "serve"):
        browser.open(page)
        browser.wait(lambda: browser.run("return document.querySelectorAll('[role=img]').length"), "charts")
        assert browser.run("return [...document.querySelectorAll('[role=img]')].every((one) => one.ariaLabel)")
    assert browser.run(UNNAMED) == 0
    assert browser.run("return document.documentElement.lang") == "en"


def test_every_page_in_the_other_theme(browser: Browser, work: list[Any]) -> None:
    for page in PAGES:
        browser.open(page)
        browser.wait(lambda page=page: PAGES[page] in browser.text(), page)  # type: ignore[misc]
        browser.driver.save_screenshot(str(SHOTS / f"{theme(browser)}-{page or 'cluster'}.png"))
        colour, behind = browser.run(COLOURS)
        assert contrast(colour, behind) > 7, (page, colour, behind)


def theme(browser: Browser) -> str:
    return str(browser.run("return document.documentElement.dataset.theme"))


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, of two colours as the browser writes them."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_pages_of_libraries_renew_themselves(browser: Browser, work: list[Any]) -> None:
    browser.open("train")
    training = TrainBoard("another", "torch", "/results/another")
    training.reported({"loss": 0.1}, "checkpoint_000777")
    training.ended(ValueError("out of luck"))
    browser.wait(lambda: "checkpoint_000777" in browser.text() and "out of luck" in browser.text(), "the newest")
    board.withdraw("train", "another")
    browser.wait(lambda: "checkpoint_000777" not in browser.text(), "its end")


def test_the_page_survives_the_loss_of_a_node(browser: Browser, work: list[Any], cluster: Cluster) -> None:
    lost = cluster.add_node(num_cpus=1)
    browser.open("")
    browser.wait(lambda: "3 of 3" in browser.text(), "three nodes")
    cluster.remove_node(lost, allow_graceful=False)
    browser.wait(lambda: "2 of 3" in browser.text() and "dead" in browser.text(), "a dead node")
    browser.driver.save_screenshot(str(SHOTS / "cluster-node-lost.png"))
    for page in PAGES:
        browser.open(page)
        browser.wait(lambda page=page: PAGES[page] in browser.text(), page)  # type: ignore[misc]
        assert not browser.driver.find_elements("css selector", ".problem"), page
