"""A parameter server in an actor and workers in a loop, each at its own pace.

python examples/parameter_server.py
"""

from __future__ import annotations

import numpy as np

import weft

WORKERS = 2
STEPS = 100


@weft.remote(num_cpus=0)
class ParameterServer:
    def __init__(self, length: int) -> None:
        self.params = np.zeros(length)

    def get_params(self) -> np.ndarray:
        return self.params

    def update_params(self, gradient: np.ndarray) -> None:
        self.params = self.params - 0.1 * gradient


@weft.remote
def worker(server: weft.ActorHandle, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(STEPS):
        params = weft.get(server.get_params.remote())
        inputs = generator.normal(size=(64, len(params)))
        errors = inputs @ (params - np.arange(len(params)))
        weft.get(server.update_params.remote(inputs.T @ errors / len(inputs)))


def main() -> None:
    weft.init(num_cpus=WORKERS)
    server = ParameterServer.remote(10)
    weft.get([worker.remote(server, seed) for seed in range(WORKERS)])
    params = weft.get(server.get_params.remote())
    assert np.allclose(params, np.arange(10), atol=1e-3), params
    print("learned:", np.round(params, 3))
    weft.shutdown()


if __name__ == "__main__":
    main()
