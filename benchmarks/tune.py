"""Overhead of weft.tune, beside Ray Tune.

    python benchmarks/tune.py                                 # Weft alone
    python benchmarks/tune.py --ray-python .venv-ray/bin/python   # and Ray Tune: pip install "ray[tune]==2.60.0"
    python benchmarks/tune.py --cases trivial_100,flat

Seconds include everything from starting the session to the result grid, except importing. `trivial_N` is N trials that
report once, `busy_N` the same after 0.25 s of pure Python each; `sleep_1000` is 1,000 trials of 0.1 s on 2 slots, whose
ideal is 50 s; `flat` is the cost of a trial at 100, 1,000 and 10,000 trials; `reports` is 2 trials that report 2,000
results a second each, for 3 s. `small` is 1,000 trials in a session that runs, beside Optuna in the same process, and
`millisecond` 2,000 trials of 1 ms of CPU on 1 and on 2 CPUs; CPU times are right on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

CASES = ("trivial_30", "trivial_100", "flat", "small", "millisecond", "reports", "sleep_1000")
RAY_CASES = ("trivial_30", "trivial_100")
BUSY_S = 0.25
REPORTS_A_SECOND = 2_000
REPORTING_S = 3.0


def measure_weft(case: str) -> dict[str, float]:
    import weft
    from weft import tune

    def trivial(config: dict[str, Any]) -> None:
        tune.report(score=config["x"])

    def busy(config: dict[str, Any]) -> None:
        compute()
        tune.report(score=config["x"])

    def sleep(config: dict[str, Any]) -> None:
        time.sleep(0.1)
        tune.report(score=config["x"])

    def busy_reporter(config: dict[str, Any]) -> None:
        began = time.monotonic()
        for number in range(int(REPORTS_A_SECOND * REPORTING_S)):
            due = began + number / REPORTS_A_SECOND
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            tune.report(score=number, lag_s=time.monotonic() - due)

    def fit(trainable: Any, number: int) -> tuple[float, Any]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            weft.init(num_cpus=2)
            grid = tune.Tuner(
                trainable,
                param_space={"x": tune.uniform(0, 1)},
                tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=number),
                run_config=tune.RunConfig(storage_path=folder, verbose=0),
            ).fit()
            elapsed = time.perf_counter() - began
            assert grid.num_terminated == number
            histories = grid.histories
            weft.shutdown()
        return elapsed, histories

    if case in ("small", "millisecond"):
        return measure_small() if case == "small" else measure_millisecond()
    if case == "flat":
        return {f"ms a trial at {number}": fit(trivial, number)[0] / number * 1e3 for number in (100, 1_000, 10_000)}
    if case == "sleep_1000":
        elapsed = fit(sleep, 1_000)[0]
        return {"s": elapsed, "% over the ideal": (elapsed / 50 - 1) * 100}
    if case == "reports":
        elapsed, histories = fit(busy_reporter, 2)
        lags = sorted(row["lag_s"] for history in histories.values() for row in history)
        span = max(max(row["time_total_s"] for row in history) for history in histories.values())
        return {
            "results": len(lags),
            "results a second and trial": len(lags) / 2 / span,
            "ms late, median": lags[len(lags) // 2] * 1e3,
            "ms late, worst": lags[-1] * 1e3,
        }
    kind, _, number = case.rpartition("_")
    return {"s": fit(busy if kind == "busy" else trivial, int(number))[0]}


def measure_small() -> dict[str, float]:
    """The second of two runs each: the first loads modules."""
    import weft

    weft.init(num_cpus=2)
    for number in (100, 1_000):
        began, began_cpu = time.perf_counter(), time.process_time()
        search(lambda config: {"score": config["x"]}, number)
        ours, ours_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        began_cpu = time.process_time()
        theirs = measure_optuna(f"trivial_{number}", jobs=1)["s"]
        theirs_cpu = time.process_time() - began_cpu
    weft.shutdown()
    return {
        "ms a trial": ours,
        "ms of the driver's CPU": ours_cpu,
        "ms in Optuna": theirs,
        "ms of its CPU": theirs_cpu,
        "times Optuna": ours / theirs,
    }


def measure_millisecond() -> dict[str, float]:
    import weft

    figures = {}
    for cpus in (1, 2):
        weft.init(num_cpus=cpus)
        search(one_millisecond, 100)
        began, began_cpu = time.perf_counter(), time.process_time()
        search(one_millisecond, 2_000)
        figures[f"ms a trial on {cpus}"] = (time.perf_counter() - began) / 2
        figures[f"ms of the driver's CPU on {cpus}"] = (time.process_time() - began_cpu) / 2
        weft.shutdown()
    return figures


def one_millisecond(config: dict[str, Any]) -> dict[str, float]:
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
    return {"score": config["x"]}


def search(trainable: Any, number: int) -> None:
    from weft import tune

    with tempfile.TemporaryDirectory() as folder:
        grid = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=number),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        assert grid.num_terminated == number


def measure_ray(case: str) -> dict[str, float]:
    import ray
    from ray import tune

    kind, _, number_text = case.rpartition("_")
    number = int(number_text)

    def trial(config: dict[str, Any]) -> None:
        if kind == "busy":
            compute()
        tune.report({"score": config["x"]})

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        grid = tune.Tuner(
            trial,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=number),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        elapsed = time.perf_counter() - began
        assert grid.num_terminated == number
        ray.shutdown()
    return {"s": elapsed}


def measure_optuna(case: str, jobs: int = 2) -> dict[str, float]:
    """As its users run trials side by side in one program: on threads."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind, _, number = case.rpartition("_")

    def objective(trial: Any) -> float:
        if kind == "busy":
            compute()
        return float(trial.suggest_float("x", 0, 1))

    began = time.perf_counter()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=int(number), n_jobs=jobs)
    assert len(study.trials) == int(number)
    return {"s": time.perf_counter() - began}


def compute() -> None:
    """Pure Python that takes `BUSY_S` of a CPU, however many others compute at the same time."""
    end = time.thread_time() + BUSY_S
    while time.thread_time() < end:
        sum(range(1000))


MEASURES = {"weft": measure_weft, "ray": measure_ray, "optuna": measure_optuna}


def run(python: str, engine: str, case: str) -> dict[str, float]:
    command = [python, __file__, "--measure", engine, "--cases", case]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(out.strip().splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="")
    parser.add_argument("--ray-python", default="")
    parser.add_argument("--rounds", type=int, default=1, help="interleaved; the best of each side counts")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = [case for case in args.cases.split(",") if case] or list(CASES)
    if args.measure:
        print(json.dumps(MEASURES[args.measure](cases[0])))
        return
    for case in cases:
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(run(sys.executable, "weft", case))
            if args.ray_python and case in RAY_CASES:
                theirs.append(run(args.ray_python, "ray", case))
        best = min(ours, key=lambda figures: next(iter(figures.values())))
        line = ", ".join(f"{value:,.3f} {name}" for name, value in best.items())
        if theirs:
            ray_s = min(figures["s"] for figures in theirs)
            line += f"; Ray Tune {ray_s:.1f} s: {ray_s / best['s']:.0f}×"
        print(f"{case:14}{line}", flush=True)


if __name__ == "__main__":
    main()
