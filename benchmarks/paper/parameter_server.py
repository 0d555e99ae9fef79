"""Figure 13: synchronous training through a parameter server, beside the framework's own data-parallel training.

The cases of benchmarks/train_parameter_server.py.
"""

from __future__ import annotations

import statistics

from reproduction import Outcome, Row, run


def measure(short: bool) -> Outcome:
    import train_parameter_server as cases

    import weft
    from weft.demos import chart

    rounds, seconds = (1, 0.5) if short else (5, 2.0)
    weft.init(num_cpus=cases.WORKERS)
    rows, bars = [], {}
    try:
        for kind in ("mlp",) if short else ("mlp", "cnn"):
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(cases.measure_server(kind, seconds, cases.WORKERS, "sync"))
                theirs.append(cases.measure(cases.ddp_loop, "torch", cases.WORKERS, kind=kind, seconds=seconds))
            server, ddp = statistics.median(ours), statistics.median(theirs)
            bars |= {f"Weft, {kind}": server, f"DDP over gloo, {kind}": ddp}
            rows.append(
                Row(
                    f"{kind}, 2 workers",
                    "as fast as Horovod, within 10% of distributed TensorFlow",
                    f"{server:,.0f} samples/s a worker; DDP over gloo {ddp:,.0f}: {server / ddp:.0%} of it",
                )
            )
    finally:
        weft.shutdown()
    return Outcome(
        "Figure 13",
        "Training through a parameter server",
        rows,
        "the paper: ResNet-101 on 4 to 64 V100 GPUs, images a second; here: small networks on 2 cores, PyTorch's DDP "
        "over gloo as the framework's own way.",
        [chart.bars(bars, "Samples a second of a worker, median", "samples/s")],
    )


if __name__ == "__main__":
    run("parameter_server", measure)
