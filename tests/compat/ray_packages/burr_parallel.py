# needs: burr
"""Parallel actions of a state machine, run by Burr's executor on Ray."""

import ray
from burr.core import ApplicationBuilder, ApplicationContext, State, action
from burr.core.parallelism import MapStates, RunnableGraph
from burr.integrations.ray import RayExecutor


@action(reads=["number"], writes=["square"])
def square(state: State) -> State:
    return state.update(square=state["number"] ** 2)


class Squares(MapStates):
    def states(self, state: State, context: ApplicationContext, inputs: dict):
        for number in state["numbers"]:
            yield state.update(number=number)

    def action(self, state: State, inputs: dict):
        return square

    def reduce(self, state: State, results):
        return state.update(total=sum(result["square"] for result in results))

    @property
    def reads(self) -> list[str]:
        return ["numbers"]

    @property
    def writes(self) -> list[str]:
        return ["total"]


ray.init(num_cpus=2)
application = (
    ApplicationBuilder()
    .with_actions(squares=Squares())
    .with_transitions()
    .with_entrypoint("squares")
    .with_state(numbers=list(range(8)))
    .with_parallel_executor(lambda: RayExecutor(shutdown_on_end=False))
    .build()
)
_, _, state = application.run(halt_after=["squares"])
assert state["total"] == sum(number**2 for number in range(8)), state
assert RunnableGraph is not None
