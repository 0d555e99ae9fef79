"""Every page of the dashboard in headless Chromium, against a cluster of two nodes that runs real work.

Screenshots go to build/screenshots. Skipped, with a word, where there is no chromium and chromedriver.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import data, serve, train, tune
from weft.cluster_utils import Cluster
from weft.data import board as data_board
from weft.engine.cluster.client import Client
from weft.library import board as library_board
from weft.rl import board as rl_board
from weft.util import board
from weft.util.placement_group import placement_group, remove_placement_group
from weft.util.state import list_actors

webdriver = pytest.importorskip("selenium.webdriver")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select
WebDriverException = pytest.importorskip("selenium.common.exceptions").WebDriverException
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="chromium and chromedriver are not installed (apt-get install chromium-driver)",
)
SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=window.hacked=1>"
UNNAMED = """return [...document.querySelectorAll("button, a, input, select")].filter((one) =>
    !(one.innerText || one.ariaLabel || one.labels?.length || one.title)).length"""
OPENED = "document.querySelectorAll('details').forEach((one) => { one.open = true; }); return true"
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
    "data": "map(doubled)",
    "serve": "default:Model#1",
}
CHARTS = ("", "stream", "graph", "tune", "rl", "train", "data", "serve")


@weft.remote(num_cpus=0.1)
def double(value: int) -> int:
    print(f"needle {value} \x1b[31m{HOSTILE}")
    return 2 * value


@weft.remote(num_cpus=0.1)
def writes(text: str) -> None:
    print(text)


@weft.remote(num_cpus=0.1)
def named(value: str) -> str:
    return value


@weft.remote(num_cpus=0.1)
def fails() -> None:
    raise ValueError(HOSTILE)


@weft.remote(num_cpus=0.1)
class Counter:
    def add(self, value: int) -> int:
        return value


@weft.remote(num_cpus=0.1, max_concurrency=2)
class Busy:
    def __init__(self) -> None:
        self.stopped = False

    def pid(self) -> int:
        return os.getpid()

    def spin(self) -> None:
        while not self.stopped:
            sum(range(1000))

    def stop(self) -> None:
        self.stopped = True


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
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # a machine without a network
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.address = address
        self._load(url)
        SHOTS.mkdir(parents=True, exist_ok=True)

    def _load(self, url: str) -> None:
        """Chromium drops what it loads when an interface of the machine comes or goes, as other programs make it."""

        def loaded() -> bool:
            with contextlib.suppress(WebDriverException):
                self.driver.get(url)
                return bool(self.run("return document.querySelector('main') !== null"))
            return False

        self.wait(loaded, "the page")

    def open(self, page: str) -> None:
        self.driver.get(f"{self.address}/#/{page}")
        self.wait(lambda: self.run("return document.querySelector('main').dataset.page") == page, page)

    def show(self, page: str) -> None:
        """Open it, and wait for what it is to show."""
        self.open(page)
        self.wait(lambda: PAGES[page] in self.text(), PAGES[page])
        if page in CHARTS:
            self.wait(lambda: self.run("return document.querySelectorAll('[role=img] canvas').length"), "a chart")

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
        """What the browser complained about, but for changes of the machine's network."""
        found = [row["message"] for row in self.driver.get_log("browser") if row["level"] == "SEVERE"]
        return [message for message in found if "ERR_NETWORK_CHANGED" not in message]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        made.add_node(num_cpus=2, resources={"there": 1})
        weft.init(address=made.address, log_to_driver=False)
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
def work(cluster: Cluster) -> list[Any]:
    """Something for each page to show."""
    counter = Counter.options(name="counted").remote()
    kept: list[Any] = [counter, weft.put(b"x" * (1 << 20)), placement_group([{"CPU": 0.1}], name="pair")]
    assert weft.get(double.remote(double.remote(1))) == 4
    assert weft.get(double.options(resources={"there": 0.1}).remote(4)) == 8
    assert weft.get([counter.add.remote(1), counter.add.remote(2)]) == [1, 2]
    with pytest.raises(ValueError, match="img"):
        weft.get(fails.options(name=HOSTILE).remote())
    return kept


@pytest.fixture(scope="module")
def libraries(work: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of each library, as its page shows it; the application goes on."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for shows_at_once, name in ((data_board, "AFTER_S"), (library_board, "PUBLISH_S")):
            patch.setattr(shows_at_once, name, 0.0)
        tunes("learning", folder)
        learns(rl_board.RunBoard("PPO", "CartPole-v1"), 5, 10)
        trains("fit", folder)
        assert data.range(1000).map(doubled).count() == 1000
        assert len(data.stream_from(lambda: iter(range(500))).map(float).run()) == 500
        try:
            serve.run(Model.bind(), name="default", route_prefix=None)
            yield folder
        finally:
            serve.shutdown()


def tunes(name: str, folder: Path) -> None:
    tune.Tuner(
        descends,
        param_space={"lr": tune.grid_search([0.1, 0.2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name=name, storage_path=str(folder), verbose=0),
    ).fit()


def descends(config: dict[str, Any]) -> None:
    for step in range(1, 4):
        tune.report(loss=1 / step - config["lr"])


def learns(shown: rl_board.RunBoard, *steps: int) -> None:
    for at in steps:
        result = {"timesteps_total": at, "timesteps_this_iter": 1, "time_this_iter_s": 0.2, "episode_reward_mean": at}
        shown.add(result)


def trains(name: str, folder: Path) -> None:
    def loop() -> None:
        for step in range(1, 4):
            train.report({"loss": 1 / step, "note": HOSTILE}, checkpoint={"step": step})

    train.Trainer(loop, workers=1, name=name, storage_path=folder).fit()


def doubled(row: dict[str, int]) -> dict[str, int]:
    return {"id": 2 * row["id"]}


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Model:
    def __call__(self, value: int) -> int:
        return 2 * value


def test_the_numbers_are_right_and_renew_themselves(browser: Browser, work: list[Any]) -> None:
    browser.open("")
    browser.wait(lambda: "2 of 2" in browser.text(), "2 of 2 nodes")
    alive = len(list_actors(filters=[("state", "=", "ALIVE")]))
    browser.wait(lambda: browser.number("actors") == alive, f"{alive} actors")
    before = tasks_run()
    browser.wait(lambda: browser.number("tasks-run") == before, f"{before} tasks")
    weft.get([double.remote(number) for number in range(50)])
    browser.wait(lambda: browser.number("tasks-run") == before + 50, "50 more tasks")


def tasks_run() -> int:
    """As the nodes count them."""
    client = Client(weft.init(ignore_reinit_error=True)["address"], None)
    return sum(node["tallies"]["finished"] + node["tallies"]["failed"] for node in client.ask("machines"))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_and_shows_what_there_is(browser: Browser, libraries: Path, page: str) -> None:
    browser.show(page)
    browser.driver.save_screenshot(str(SHOTS / f"{page or 'cluster'}.png"))
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('main img').length") == 0
    assert browser.problems() == []


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


def test_a_dashboard_whose_session_has_ended_says_so(browser: Browser, work: list[Any]) -> None:
    browser.show("tasks")
    browser.run("window.kept = window.fetch; window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    try:
        browser.wait(lambda: "The session has ended" in browser.text(), "what happened")
        assert "Counter.add" in browser.text()  # what was known last
    finally:
        browser.run("window.fetch = window.kept")
    browser.wait(lambda: "The session has ended" not in browser.text(), "the session again")


def test_a_function_opens_into_its_tasks_and_a_task_into_its_story(browser: Browser, work: list[Any]) -> None:
    waits = named.options(num_cpus=64, name="told").remote("")
    browser.open("")
    browser.open("graph")
    browser.wait(lambda: browser.run(OPENED) and "told" in browser.text(), "the function")
    browser.wait(lambda: browser.run(press_open("ok")), "its button")
    browser.wait(lambda: "all functions (now told)" in browser.text(), "its tasks")
    browser.wait(lambda: browser.run(press_open("submitted")), "the task's button")
    story = "return document.querySelector('[data-test=story]')?.innerText || ''"
    browser.wait(lambda: "not yet: it asks for 64 CPU, which no node can ever hold" in browser.run(story), "its story")
    weft.cancel(waits)


def press_open(status: str) -> str:
    """Presses the button of the node with that name and status, if it is there: a function's is `ok`."""
    return f"""document.querySelectorAll("details").forEach((one) => {{ one.open = true; }});
        const row = [...document.querySelectorAll("tr")].find((one) => one.cells[0].innerText === "told"
            && one.cells[2]?.innerText === {status!r});
        row?.querySelector("button").click();
        return Boolean(row)"""


def test_a_function_that_ran_opens_into_its_single_runs(browser: Browser, work: list[Any]) -> None:
    browser.show("tasks")
    names = f"{CELLS}.includes('double')"
    browser.wait(lambda: browser.run(f"return {names}"), "the function is listed")
    browser.run("[...document.querySelectorAll('td button')].find((one) => one.innerText === 'double').click()")
    runs = "document.querySelector('[data-test=runs]')"
    browser.wait(lambda: browser.run(f"return {runs} && {runs}.querySelectorAll('tbody tr').length > 1"), "its runs")
    assert "double" in browser.run(f"return {runs}.innerText")
    assert browser.problems() == []


def test_logs_are_searched_as_one_types(browser: Browser, work: list[Any]) -> None:
    browser.open("logs")
    browser.wait(lambda: "needle 1" in browser.text(), "the lines")
    search = browser.driver.find_element("css selector", "input[type=search]")
    search.send_keys("needle 2")
    browser.wait(lambda: "needle 2" in browser.text() and "needle 1 " not in browser.text(), "only what fits")
    assert "\x1b" not in browser.text() and HOSTILE in browser.text()


def test_a_line_of_ten_megabytes_leaves_the_logs_readable(browser: Browser, work: list[Any]) -> None:
    weft.get(writes.remote(f"\x1b[31m<script>window.hacked=1</script>{'y' * (10 << 20)}\nafter the long line"))
    browser.open("")
    browser.open("logs")  # anew, without what was searched for before
    browser.wait(lambda: "after the long line" in browser.text() and "more)" in browser.text(), "the lines")
    assert len(browser.text()) < 2_000_000 and "\x1b" not in browser.text()
    assert browser.run("return window.hacked") is None
    search = browser.driver.find_element("css selector", "input[type=search]")
    search.send_keys("<script>")
    browser.wait(lambda: "1 line" in browser.text(), "only what fits")
    browser.driver.save_screenshot(str(SHOTS / "logs-long-line.png"))


def test_keys_the_theme_and_a_phone(browser: Browser, libraries: Path) -> None:
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
        browser.show(page)
        width = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 1, f"{page} is wider than a phone by {width}"
        browser.driver.save_screenshot(str(SHOTS / f"phone-{page or 'cluster'}.png"))
    browser.driver.set_window_size(1400, 1000)


def test_all_is_reached_by_keyboard_alone(browser: Browser, work: list[Any]) -> None:
    browser.open("logs")
    press(browser, "/")
    browser.wait(lambda: browser.run("return document.activeElement.type") == "search", "the search")
    browser.open("tasks")
    browser.run("document.activeElement.blur(); document.querySelector('a.skip').focus()")
    press(browser, Keys.ENTER)
    assert browser.run("return document.activeElement.tagName") == "MAIN"
    seen = set()
    for _ in range(60):
        press(browser, Keys.TAB)
        seen.add(browser.run("return document.activeElement.closest('th')?.innerText.trim() || ''"))
        if "runs" in seen:
            break
    assert {"task", "state", "runs"} <= seen
    press(browser, Keys.ENTER)
    sorted_by = "return document.querySelector('th[aria-sort=ascending]')?.innerText.trim() || ''"
    browser.wait(lambda: browser.run(sorted_by).startswith("runs"), "the order")


def press(browser: Browser, key: str) -> None:
    webdriver.ActionChains(browser.driver).send_keys(key).perform()


def test_a_long_hostile_name_is_shown_harmlessly_wherever_names_are(browser: Browser, work: list[Any]) -> None:
    name = f"\x1b[2J\u202e{HOSTILE}{'n' * 9000}"
    ref = fails.options(name=name).remote()
    weft.wait([ref])
    waits = named.options(num_cpus=64, name=name).remote("")
    with pytest.raises(ValueError, match="at most 10000 bytes"):
        fails.options(name="n" * (10 << 20))
    for page in ("stream", "graph", "tasks", "errors"):
        browser.open(page)
        browser.wait(lambda: browser.run(OPENED) and "nnn" in browser.text(), "the name")
        assert browser.run("return window.hacked") is None
        assert browser.run("return document.querySelectorAll('main img').length") == 0
        width = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 1, f"{page} is made {width} wider by a name"
    browser.driver.save_screenshot(str(SHOTS / "hostile-names.png"))
    weft.cancel(waits)


def test_what_is_not_text_has_words_for_a_screen_reader(browser: Browser, libraries: Path) -> None:
    for page in CHARTS:
        browser.show(page)
        assert browser.run("return [...document.querySelectorAll('[role=img]')].every((one) => one.ariaLabel)")
    assert browser.run(UNNAMED) == 0
    assert browser.run("return document.documentElement.lang") == "en"


def test_every_page_in_the_other_theme(browser: Browser, libraries: Path) -> None:
    for page in PAGES:
        browser.show(page)
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


def live_stream(folder: Path) -> Iterator[str]:
    yield weft.get(named.options(name="live-stream").remote("live-stream"))


def live_graph(folder: Path) -> Iterator[str]:
    yield weft.get(named.options(name="live-graph").remote(named.remote("live-graph")))


def live_tasks(folder: Path) -> Iterator[str]:
    pending = named.options(num_cpus=64, name="live-task").remote("")
    yield r"live-task\s+PENDING_NODE_ASSIGNMENT\s+it asks for 64 CPU, which no node can ever hold"
    weft.cancel(pending)


def live_actors(folder: Path) -> Iterator[str]:
    actor = Counter.options(name="live-actor").remote()
    weft.get(actor.add.remote(1))
    yield r"live-actor\s+ALIVE"
    weft.kill(actor)


def live_objects(folder: Path) -> Iterator[str]:
    kept = weft.put(b"x" * (3 << 20))
    yield r"3\.0 MiB\s+FINISHED\s+arena"
    del kept


def live_jobs(folder: Path) -> Iterator[str]:
    code = f"import sys, weft; weft.init(address={weft.init(ignore_reinit_error=True)['address']!r}); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as driver:
        yield rf"{driver.pid}\s+driver\s+ALIVE"
        driver.communicate()


def live_groups(folder: Path) -> Iterator[str]:
    group = placement_group([{"CPU": 0.1}], name="live-group")
    yield r"live-group\s+CREATED"
    remove_placement_group(group)


def live_logs(folder: Path) -> Iterator[str]:
    weft.get(double.remote(1234))
    yield "needle 1234"


def live_errors(folder: Path) -> Iterator[str]:
    ref = fails.options(name="live-error").remote()
    weft.wait([ref])
    yield r"ValueError in\s+live-error"


def live_tune(folder: Path) -> Iterator[str]:
    tunes("live-tuning", folder)
    yield r"live-tuning\s+2 trials: 2 TERMINATED"


def live_rl(folder: Path) -> Iterator[str]:
    learns(rl_board.RunBoard("DQN", "LiveEnvironment"), 1000, 1234)
    yield "DQN on LiveEnvironment: 1,234 steps, 5 steps/s"


def live_train(folder: Path) -> Iterator[str]:
    trains("live-training", folder)
    yield r"live-training\s+state\s+finished"


def live_data(folder: Path) -> Iterator[str]:
    assert data.range(4321).map(doubled).count() == 4321
    yield r"range\(4321\) → map\(doubled\)"
    assert len(data.stream_from(lambda: iter(range(432))).flat_map(lambda number: [number]).run()) == 432
    yield r"IteratorSource → flat_map\s+1\s+432\s+432"


def live_serve(folder: Path) -> Iterator[str]:
    handle = serve.get_app_handle("default")
    assert [handle.remote(number).result() for number in range(5)] == [0, 2, 4, 6, 8]
    yield r"default:Model#1\s+RUNNING\s+0\s+5\s"


LIVE = {name.removeprefix("live_"): act for name, act in globals().items() if name.startswith("live_")}


def test_no_page_that_renews_itself_is_left_out() -> None:
    """The cluster's numbers have a test of their own; a flame graph is made when it is asked for."""
    assert set(PAGES) - set(LIVE) == {"", "profile"}


@pytest.mark.parametrize("page", LIVE)
def test_every_page_shows_what_happens_while_it_is_open(browser: Browser, libraries: Path, page: str) -> None:
    browser.show(page)
    browser.run(f"window.stayed = true; {OPENED}")
    for pattern in LIVE[page](libraries):
        browser.wait(lambda pattern=pattern: re.search(pattern, browser.text()), pattern)  # type: ignore[misc]
    assert browser.run("return window.stayed"), "the page was loaded again"


def test_a_flame_graph_is_drawn_of_a_process_that_works(browser: Browser, work: list[Any]) -> None:
    busy = Busy.remote()
    pid = weft.get(busy.pid.remote())
    ended = busy.spin.remote()
    browser.open("profile")
    browser.wait(lambda: str(pid) in browser.text(), "the process")
    choice = browser.driver.find_element("css selector", "select")
    Select(choice).select_by_value(str(pid))
    browser.run("document.querySelector('input[type=number]').value = 1")
    browser.driver.find_element("xpath", "//button[text()='flame graph']").click()
    label = "return document.querySelector('[role=img]')?.ariaLabel || ''"
    refused = "py-spy cannot look"
    browser.wait(lambda: "flame graph with" in browser.run(label) or refused in browser.text(), "the graph")
    if refused in browser.text():
        pytest.skip("this machine does not let py-spy look at processes")
    assert int(re.findall(r"\d+", browser.run(label))[0]) > 20
    browser.driver.save_screenshot(str(SHOTS / "flame-graph.png"))
    browser.driver.find_element("xpath", "//button[text()='all stacks now']").click()
    browser.wait(lambda: f"process {pid}" in browser.text(), "its stack")
    weft.get([busy.stop.remote(), ended])


def test_a_board_that_is_withdrawn_leaves_its_page(browser: Browser, libraries: Path) -> None:
    shown = {"algorithm": "X", "environment": "Gone", "steps": 1, "rewards": [], "throughput": []}
    board.publish("rl", "leaves", shown)
    browser.open("rl")
    browser.wait(lambda: "X on Gone" in browser.text(), "the run")
    board.withdraw("rl", "leaves")
    browser.wait(lambda: "X on Gone" not in browser.text(), "its end")


def test_the_page_survives_the_loss_of_a_node(browser: Browser, libraries: Path, cluster: Cluster) -> None:
    lost = cluster.add_node(num_cpus=1)
    browser.open("")
    browser.wait(lambda: "3 of 3" in browser.text(), "three nodes")
    cluster.remove_node(lost, allow_graceful=False)
    browser.wait(lambda: "2 of 3" in browser.text() and "dead" in browser.text(), "a dead node")
    browser.driver.save_screenshot(str(SHOTS / "cluster-node-lost.png"))
    for page in PAGES:
        browser.show(page)
        assert not browser.driver.find_elements("css selector", ".problem"), page
