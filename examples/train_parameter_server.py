"""train.ParameterServer: parameters sharded over actors, gradients averaged over workers that may die and come back.

python examples/train_parameter_server.py
"""

from __future__ import annotations

import numpy as np

import weft
from weft import train

WORKERS = 2
STEPS = 200


@weft.remote(num_cpus=0)
def worker(server: train.ParameterServer, rank: int) -> None:
    generator = np.random.default_rng(rank)
    with server.join(rank) as link:
        for _ in range(STEPS):
            params = link.pull()  # views of shared memory
            inputs = generator.normal(size=(64, 10))
            errors = inputs @ params["weights"] + params["bias"] - (inputs @ np.arange(10) + 5)
            link.push({"weights": inputs.T @ errors / len(inputs), "bias": errors.mean(keepdims=True)})


def main() -> None:
    weft.init()
    parameters = {"weights": np.zeros(10), "bias": np.zeros(1)}
    server = train.ParameterServer(parameters, train.SGD(0.1), workers=WORKERS, shards=2)
    weft.get([worker.remote(server, rank) for rank in range(WORKERS)])
    learned = server.pull()
    assert np.allclose(learned["bias"], 5), learned
    print("learned:", np.round(learned["weights"], 3))
    weft.shutdown()


if __name__ == "__main__":
    main()
