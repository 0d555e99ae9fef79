"""Policies of `weft.rl`, or anything with an `act_batch`, as deployments: many callers' observations in one call.

The policy is the deployment's user config: `serve.run` with other weights gives them to the replicas that run, and no
request fails or waits for it.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol, runtime_checkable

from weft.serve.batching import batch
from weft.serve.config import DeploymentConfig
from weft.serve.deployments import Application, Deployment

MOST_IN_BATCH = 64


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
    return Deployment(PolicyServer, "policy", config).bind()
