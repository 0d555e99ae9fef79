# needs: flwr
"""A federated round with clients in actors."""

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

seen = []


class Client(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + 1.0], 10, {}

    def evaluate(self, parameters, config):
        return float(parameters[0].sum()), 10, {"accuracy": 1.0}


def noted(metrics):
    seen.append(metrics)
    return {"accuracy": 1.0}


def components(context: Context) -> ServerAppComponents:
    strategy = FedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(3)]), evaluate_metrics_aggregation_fn=noted)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


run_simulation(
    server_app=ServerApp(server_fn=components),
    client_app=ClientApp(client_fn=lambda context: Client().to_client()),
    num_supernodes=4,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
)
assert len(seen) == 2 and len(seen[0]) == 4, seen
