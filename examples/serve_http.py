"""A model behind HTTP: JSON in, JSON out; the same deployment by its handle, without HTTP.

python examples/serve_http.py
"""

import json
import urllib.request

import numpy as np

from weft import serve


@serve.deployment(num_replicas=2, max_ongoing_requests=64)
class Model:
    def __init__(self, size: int) -> None:
        self.weights = np.arange(size, dtype=np.float32)

    @serve.batch(max_batch_size=32, wait_s=0.002)
    async def __call__(self, states: list[list[float]]) -> list[float]:
        return (np.asarray(states, dtype=np.float32) @ self.weights).tolist()


def main():
    handle = serve.run(Model.bind(4), name="model", route_prefix="/model")
    print("by handle:", handle.remote([1, 1, 1, 1]).result())
    address = serve.start(http_options=serve.HTTPOptions(port=0))
    request = urllib.request.Request(
        f"{address}/model", data=b"[1, 1, 1, 1]", headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        print("over HTTP:", json.load(answer))
    serve.shutdown()


if __name__ == "__main__":
    main()
