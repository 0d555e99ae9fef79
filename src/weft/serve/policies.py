"""Policies of `weft.rl`, or anything with an `act_batch`, as deployments: many callers' observations in one call.

The policy is the deployment's user config: `serve.run` with other weights gives them to the replicas that run, and no
request fails or waits for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol, runtime_checkable

from weft.serve.batching import batch
from weft.serve.config import DeploymentConfig
from weft.serve.context import get_session_id
from weft.serve.deployments import Application, Deployment

MOST_IN_BATCH = 64
MOST_SESSIONS = 10_000
"""Whose memories one replica keeps, those used last."""


@runtime_checkable
class ActsInBatches(Protocol):
    def act_batch(self, observations: Any, explore: bool = False) -> Any: ...


class PolicyServer:
    """The deployment's class. `__call__` gives the best action for an observation, `explore` one as in training."""

    def __init__(self) -> None:
        self._policy: ActsInBatches | None = None
        self._lock = threading.Lock()

    def reconfigure(self, policy: ActsInBatches) -> None:
        self._policy = policy

    @batch(max_batch_size=MOST_IN_BATCH, wait_s=0)
    def __call__(self, observations: list[Any]) -> list[Any]:
        return self._act(observations, False)

    @batch(max_batch_size=MOST_IN_BATCH, wait_s=0)
    def explore(self, observations: list[Any]) -> list[Any]:
        return self._act(observations, True)

    def _act(self, observations: list[Any], explore: bool) -> list[Any]:
        assert self._policy is not None
        with self._lock:
            return list(self._policy.act_batch(observations, explore))


class RecurrentPolicyServer:
    """The same for a policy that remembers its episode: each session has a memory, in the replica that it goes to."""

    def __init__(self) -> None:
        self._policy: Any = None
        self._lock = threading.Lock()
        self._memories: OrderedDict[str, Any] = OrderedDict()
        """By session, the one that was used last at the end."""

    def reconfigure(self, policy: ActsInBatches) -> None:
        self._policy = policy

    async def __call__(self, observation: Any) -> Any:
        return await self._best((_session(), observation))

    async def explore(self, observation: Any) -> Any:
        return await self._explore((_session(), observation))

    async def reset(self) -> None:
        """An episode of the session begins."""
        self._memories.pop(_session(), None)

    @batch(max_batch_size=MOST_IN_BATCH, wait_s=0)
    def _best(self, steps: list[tuple[str, Any]]) -> list[Any]:
        return self._act(steps, False)

    @batch(max_batch_size=MOST_IN_BATCH, wait_s=0)
    def _explore(self, steps: list[tuple[str, Any]]) -> list[Any]:
        return self._act(steps, True)

    def _act(self, steps: list[tuple[str, Any]], explore: bool) -> list[Any]:
        actions: list[Any] = [None] * len(steps)
        with self._lock:
            for turn in in_turns([session for session, _ in steps]):
                memories = [self._memories.get(steps[at][0]) for at in turn]
                made, after = self._policy.act_remembering([steps[at][1] for at in turn], memories, explore)
                for at, action, memory in zip(turn, made, after, strict=True):
                    actions[at] = action
                    self._memories[steps[at][0]] = memory
                    self._memories.move_to_end(steps[at][0])
            while len(self._memories) > MOST_SESSIONS:
                self._memories.popitem(last=False)
        return actions


def in_turns(sessions: list[str]) -> list[list[int]]:
    """Places in the list, such that no turn has two of one session, and those of one session keep their order.

    >>> in_turns(["a", "b", "a", "a"])
    [[0, 1], [2], [3]]
    """
    turns: list[list[int]] = []
    seen: dict[str, int] = {}
    for at, session in enumerate(sessions):
        turn = seen[session] = seen.get(session, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(at)
    return turns


def _session() -> str:
    session = get_session_id()
    if not session:
        raise ValueError(
            "this policy remembers its episode: call handle.options(session_id=...), or send the header "
            "serve-session-id, with an id for each caller's"
        )
    return session


def policy_app(policy: ActsInBatches, **options: Any) -> Application:
    """An application that acts by the policy; the options are those of `@serve.deployment`.

    `serve.run(policy)` runs it as it is; run it again with new weights to have them used from then on.

    >>> class Constant:
    ...     def act_batch(self, observations, explore=False): return [7] * len(observations)
    >>> from weft import serve
    >>> serve.run(policy_app(Constant())).remote([0.0, 1.0]).result()
    7
    >>> serve.shutdown()
    """
    if not isinstance(policy, ActsInBatches):
        raise TypeError(f"a policy has an act_batch(observations, explore), but got {policy!r}")
    config = DeploymentConfig(user_config=policy).changed(**options)
    server = RecurrentPolicyServer if getattr(policy, "remembers", False) else PolicyServer
    return Deployment(server, "policy", config).bind()
