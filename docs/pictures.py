"""The pictures in docs/images: the dashboard while a program runs, and the demo's plot. `make pictures`.

It needs Chromium and its driver, and selenium, as the dashboard's tests do.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

import weft
from weft import demos, tune

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH, HEIGHT = 1280, 800
PAGES = {"stream": ("stream", 3.0), "graph": ("graph", 3.0), "tune": ("tune", 3.0), "cluster": ("", 25.0)}
"""Where each is, and how long it is looked at: charts begin when a page is opened."""


@weft.remote
def load(part: int) -> np.ndarray:
    time.sleep(0.02)
    return np.full(100_000, part, float)


@weft.remote
def clean(rows: np.ndarray) -> np.ndarray:
    time.sleep(0.03)
    return rows[rows % 2 == 0]


@weft.remote
def count(*parts: np.ndarray) -> int:
    return sum(len(part) for part in parts)


@weft.remote(num_cpus=0)
class Totals:
    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: int) -> int:
        self.rows += rows
        return self.rows


def work(is_over: threading.Event) -> None:
    """Rounds of load, clean and count, added up by an actor."""
    totals = Totals.remote()
    while not is_over.is_set():
        cleaned = [clean.remote(load.remote(part)) for part in range(24)]
        weft.get(totals.add.remote(count.remote(*cleaned)))


def slope(config: dict[str, float]) -> None:
    for step in range(8):
        tune.report({"loss": (config["rate"] - 0.1) ** 2 + config["width"] / 100 + 1 / (1 + step)})


def search() -> None:
    space = {"rate": tune.loguniform(1e-3, 1.0), "width": tune.randint(1, 9)}
    config = tune.TuneConfig(metric="loss", mode="min", num_samples=24)
    tune.Tuner(slope, param_space=space, tune_config=config).fit()


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))


def main() -> int:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("chromium and chromedriver are not installed (apt-get install chromium chromium-driver)", file=sys.stderr)
        return 1
    session = weft.init()
    search()
    is_over = threading.Event()
    worker = threading.Thread(target=work, args=(is_over,))
    worker.start()
    driver = browser()
    try:
        driver.get(session.dashboard_url)
        for name, (page, wait_s) in PAGES.items():
            driver.execute_script(f"location.hash = '#/{page}'")
            WebDriverWait(driver, 30).until(lambda one: one.find_elements("css selector", "main h1, main h2"))
            time.sleep(wait_s)
            driver.save_screenshot(str(IMAGES / f"dashboard-{name}.png"))
            print(IMAGES / f"dashboard-{name}.png")
    finally:
        driver.quit()
        is_over.set()
        worker.join()
        weft.shutdown()
    plot = IMAGES / "demo.svg"
    demos.BY_NAME[demos.DEFAULT].run(demos.Options(plot=plot))
    print(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
