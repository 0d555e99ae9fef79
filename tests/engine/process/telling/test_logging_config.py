"""How verbose a job's own loggers are, in its driver and its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import weft
from weft.engine.process.telling import logging_config

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


def said(given: str, code: str = CODE, **variables: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code, given],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
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


OWN = """
import logging, sys, weft
weft.init(num_cpus=1, **eval(sys.argv[1]))

@weft.remote
def speaks(value):
    for level in (logging.DEBUG, logging.INFO, logging.ERROR):
        logging.getLogger("weft.own").log(level, "%s of the worker", logging.getLevelName(level))
    logging.getLogger("app").info("of the user")

weft.get(speaks.remote(1))
for level in (logging.DEBUG, logging.INFO, logging.ERROR):
    logging.getLogger("weft.own").log(level, "%s of the driver", logging.getLevelName(level))
weft.engine.process.session.session._current.host.warn("a warning of the engine")
weft.shutdown()
logging.getLogger("weft.own").error("after the session")
assert logging.getLogger("weft").level == logging.NOTSET
"""


@pytest.mark.parametrize(
    ("given", "shown", "hidden"),
    [
        ("{}", ["ERROR of the driver", "ERROR of the worker", "weft: a warning"], ["INFO of", "DEBUG of"]),
        ("{'logging_level': logging.INFO}", ["INFO of the driver", "INFO of the worker"], ["DEBUG of", "of the user"]),
        (
            "{'logging_level': 'debug', 'logging_format': 'mine %(message)s'}",
            ["mine DEBUG of the driver", "mine DEBUG of the worker", "mine attached to node", "mine a warning"],
            ["of the user"],
        ),
        (
            "{'logging_level': logging.CRITICAL}",
            ["after the session"],
            ["ERROR of", "a warning of the engine", "of the user"],
        ),
        ("{'logging_level': 'debug', 'configure_logging': False}", ["ERROR of the worker"], ["INFO of", "DEBUG of"]),
    ],
)
def test_the_level_of_wefts_own_loggers_holds_in_driver_and_workers(
    given: str, shown: list[str], hidden: list[str]
) -> None:
    text = said(given, OWN)
    assert all(words in text for words in shown), text
    assert not any(words in text for words in hidden), text


def test_the_level_is_chosen_from_outside_too_and_beside_a_jobs_own() -> None:
    assert "INFO of the worker" in said("{}", OWN, WEFT_LOGGING_LEVEL="info")
    text = said("{'logging_level': 'info', 'logging_config': weft.LoggingConfig(log_level='INFO')}", OWN)
    assert text.count("INFO of the driver") == text.count("INFO of the worker") == text.count("of the user") == 1


@pytest.mark.parametrize(
    "wrong", [{"logging_level": "loud"}, {"logging_level": 1.5}, {"logging_format": 3}, {"configure_logging": "no"}]
)
def test_a_level_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError), match="must be"):
        weft.init(**wrong)
    assert not weft.is_initialized()


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
