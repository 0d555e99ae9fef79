"""Table 3: states a second of a policy that is served inside the program, beside an HTTP server.

The cases of benchmarks/serve.py. The HTTP server is weft.serve's own front with JSON bodies.
"""

from __future__ import annotations

import json
import statistics

from reproduction import Outcome, Row, run

CASES = (
    ("4 KB states, 10 ms model", 4096, 0.010, "6,200 states/s; Clipper over REST 4,400"),
    ("100 KB states, 5 ms model", 102_400, 0.005, "6,900 states/s; Clipper over REST 290"),
)


def measure(short: bool) -> Outcome:
    import numpy as np

    import serve as cases
    import weft
    from weft import serve
    from weft.demos import chart

    rounds, seconds = (1, 0.5) if short else (7, 1.0)
    rows, bars = [], {}
    weft.init()
    try:
        address = serve.start(http_options=serve.HTTPOptions(port=0, max_body_bytes=1 << 30))
        for label, state_bytes, duration_s, paper in CASES:
            handle = serve.run(cases.Model.bind(duration_s), name="model", route_prefix="/model")
            states = np.random.default_rng(0).random((cases.BATCH, state_bytes // 4), dtype=np.float32)
            body = json.dumps(states.tolist()).encode()
            inside = [cases.BATCH * cases.rate(lambda: handle.remote(states).result(), seconds) for _ in range(rounds)]  # noqa: B023
            over_http = [cases.BATCH * cases.rate(lambda: cases.post(address, body), seconds) for _ in range(rounds)]  # noqa: B023
            ours, theirs = statistics.median(inside), statistics.median(over_http)
            bound = cases.BATCH / duration_s
            bars |= {f"Weft, {label}": ours, f"HTTP, {label}": theirs}
            rows.append(
                Row(
                    label,
                    paper,
                    f"{ours:,.0f} states/s, {ours / bound:.0%} of the model's own {bound:,.0f}; over HTTP "
                    f"{theirs:,.0f}",
                )
            )
        serve.shutdown()
    finally:
        weft.shutdown()
    return Outcome(
        "Table 3",
        "Embedded serving",
        rows,
        "the paper: a p3.8xlarge with GPUs, networks that take 10 and 5 ms, Clipper as the HTTP server; here: models "
        "that sleep as long, weft.serve's HTTP front with JSON in Clipper's place, two client threads.",
        [chart.bars(bars, "States a second, batches of 64", "states/s; logarithmic", log=True)],
    )


if __name__ == "__main__":
    run("serving", measure)
