"""The control store's machines, driven by whatever Hypothesis thinks of."""

from __future__ import annotations

import os

from chain_network import Faults, Network
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

EXAMPLES = int(os.environ.get("WEFT_CHAIN_EXAMPLES", "6"))
KEYS = [b"k0", b"k4"]


class StoreMachine(RuleBasedStateMachine):
    """Operations and faults in any order; at the end all is calm, every call has ended and every history is sound."""

    @initialize(seed=st.integers(0, 1 << 30))
    def found(self, seed: int) -> None:
        self.network = Network(seed, Faults())
        self.callers = [self.network.add_client() for _ in range(2)]
        self.listener = self.network.add_client(subscribes=True)
        self.network.run_until(0.2)

    @rule(caller=st.integers(0, 1))
    def ask(self, caller: int) -> None:
        self.network.ask(self.callers[caller], KEYS)

    @rule(duration=st.sampled_from((0.001, 0.01, 0.1, 0.5)))
    def wait(self, duration: float) -> None:
        self.network.run_until(self.network.now + duration)

    @rule()
    def join(self) -> None:
        if len(self.network.servers) < 8:
            self.network.add_server()

    @rule()
    def crash(self) -> None:
        self.network.crash_some()

    @rule(duration=st.sampled_from((0.05, 0.2, 0.6)))
    def partition(self, duration: float) -> None:
        self.network.partition(duration)

    @rule(duration=st.sampled_from((0.05, 0.2, 0.6)), which=st.integers(0, 7))
    def pause(self, duration: float, which: int) -> None:
        living = self.network.living()
        self.network.pause(living[which % len(living)].state.name, duration)

    @invariant()
    def replicas_of_a_chain_have_what_their_successors_have(self) -> None:
        if hasattr(self, "network"):
            self.network.check_order()

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.network.calm_down(KEYS, self.listener)


StoreMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
test_the_store_survives_whatever_is_thought_of = StoreMachine.TestCase
