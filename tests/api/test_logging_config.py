"""How verbose a job's own loggers are, in its driver and its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import weft
from weft.engine.process import logging_config

CODE = """
import logging, sys, weft
given = eval(sys.argv[1])
weft.init(num_cpus=1, **({} if given is None else {"logging_config": given}))

@weft.remote
def speaks():
    logging.getLogger("app").debug("a detail")
    logging.getLogger("app").warning("a warning")

@weft.remote
class Actor:
    def speaks(self):
        try:
            1 / 0
        except ZeroDivisionError:
            logging.getLogger("app").exception("caught")

@weft.remote
def own():
    logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
    logging.getLogger("app").error("through its own handler")

weft.get([speaks.remote()])
actor = Actor.remote()
weft.get([actor.speaks.remote(), own.remote()])
logging.getLogger("app").debug("of the driver")
"""


def said(given: str, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", CODE, given],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_without_it_loggers_are_as_python_makes_them() -> None:
    text = said("None")
    assert "a warning" in text and "a detail" not in text and "of the driver" not in text


def test_a_job_chooses_its_level_for_driver_and_workers() -> None:
    text = said("weft.LoggingConfig(log_level='DEBUG')")
    assert "DEBUG app -- a detail" in text and "DEBUG app -- of the driver" in text
    assert "through its own handler" in text


def test_json_tells_the_task_and_the_error() -> None:
    lines = said("None", WEFT_LOGGING="json:debug").splitlines()
    rows = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
    found = {row["message"]: row for row in rows}
    assert found["a detail"]["task_name"] == "speaks" and found["a detail"]["levelname"] == "DEBUG"
    assert found["caught"]["task_name"] == "Actor.speaks" and len(found["caught"]["actor_id"]) == 32
    assert "ZeroDivisionError" in found["caught"]["exc_text"]


def test_a_quiet_job_says_less() -> None:
    assert "a warning" not in said("None", WEFT_LOGGING="error")


@pytest.mark.parametrize(
    "wrong", [{"encoding": "XML"}, {"log_level": "LOUD"}, {"additional_log_standard_attrs": ["a b"]}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        weft.LoggingConfig(**wrong)  # type: ignore[arg-type]


def test_it_travels_as_text() -> None:
    config = weft.LoggingConfig("JSON", 15, ("module",))
    assert logging_config.LoggingConfig.of_text(config.text()) == weft.LoggingConfig("JSON", "15", ("module",))
    with pytest.raises(TypeError, match=r"must be a weft\.LoggingConfig"):
        weft.init(logging_config="DEBUG")
