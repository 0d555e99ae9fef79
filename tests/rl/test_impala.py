"""IMPALA's learner and its queue: who waits for whom."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from worlds import Matching

import weft
from weft.rl.algorithms.impala import Impala

QUICK: dict[str, Any] = {
    "env": Matching,
    "workers": 2,
    "envs_per_worker": 2,
    "fragment_steps": 8,
    "hidden": (8,),
    "seed": 1,
    "updates_per_iteration": 10,
}


class Watched(Impala):
    """Notes when updates begin, when their end is waited for, and when fragments are asked for and waited for."""

    def build(self) -> None:
        super().build()
        self.events: list[tuple[str, int, int]] = []  # (what, version, fragments that wait in the driver)
        self.slow = False
        compiled = self._update

        def update(learner: Any, batch: Any) -> Any:
            if self.slow and self.workers.asked:  # samples arrive while the learner is busy
                weft.wait(list(self.workers._in_flight), num_returns=1)
            return compiled(learner, batch)

        self._update = update

    def _begin(self) -> Any:
        begun = super()._begin()
        self.events.append(("begin", begun[0].version, len(self._queue)))
        return begun

    def _finish(self, update: Any) -> None:
        if update is not None:
            self.events.append(("finish", update.version, len(self._queue)))
        super()._finish(update)

    def _receive(self, wait_s: float | None, up_to: float = math.inf) -> None:
        if wait_s != 0.0:
            self.events.append(("wait", self.version, len(self._queue)))
        super()._receive(wait_s, up_to)

    def _ask(self, ahead: int) -> None:
        self.events.append(("ask", self.version, len(self._queue)))
        super()._ask(ahead)


def test_nobody_waits_for_fragments_or_for_an_update_while_a_batch_is_there(weft_session: ModuleType) -> None:
    for fragments_per_update in (1, 2):
        with Watched(QUICK, fragments_per_update=fragments_per_update) as algorithm:
            for _ in range(5):
                algorithm.train()
        begun, ended = 0, 0
        for what, version, waiting in algorithm.events:
            if what == "begin":
                assert version == begun + 1
                begun = version
            elif what == "wait":
                assert waiting < fragments_per_update, algorithm.events
            else:  # the learner has something to do meanwhile
                ended = version if what == "finish" else ended
                assert begun > ended or waiting < fragments_per_update, algorithm.events
        assert begun == 50


def test_while_samples_wait_the_next_update_begins_before_the_last_has_ended(weft_session: ModuleType) -> None:
    with Watched(QUICK) as algorithm:
        algorithm.train()  # compiles
        algorithm.events.clear()
        algorithm.slow = True
        results = [algorithm.train() for _ in range(3)]
    names = [what for what, _, _ in algorithm.events]
    # The first update may find nothing to do; after it there is always a fragment that arrived meanwhile.
    first = names.index("begin")
    assert "wait" not in names[first:]
    begun = 0
    for what, version, _ in algorithm.events[first:]:
        begun = version if what == "begin" else begun
        assert what != "finish" or begun > version, algorithm.events
    assert names.count("begin") == 30
    assert results[-1]["learner"]["learner_idle_s"] == 0.0


def test_what_an_update_says_and_its_version_are_known_after_the_first_iteration(weft_session: ModuleType) -> None:
    with Impala(QUICK, updates_per_iteration=1) as algorithm:
        said = algorithm.train()["learner"]
        assert {"policy_loss", "value_loss", "entropy", "ratio_mean", "fragment_lag"} <= set(said)
        for _ in range(5):
            assert algorithm.train()["learner"]["fragment_lag"] >= 0
        assert algorithm.version == 6
