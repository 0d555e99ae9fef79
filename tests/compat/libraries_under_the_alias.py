"""Ray's libraries where `import ray` finds Weft. Run by `test_ray_words.py`, with `python -m weft.compat`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ray
import ray.train
from ray import serve, tune
from ray.serve.config import AutoscalingContext, AutoscalingPolicy
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.result import TRAINING_ITERATION

import weft.serve
from waiting import comes_true


@pytest.fixture(scope="session", autouse=True)
def _polars_is_awake() -> None:
    """Polars opens descriptors at its first query that are its own and stay: before the checks for leaks begin."""
    file = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(file)
    file.seek(0)
    assert pl.scan_parquet(file).collect(engine="streaming").height == 1


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with ray.init(num_cpus=4):
        yield


# ---- serve -----------------------------------------------------------------------------------------


@pytest.fixture
def address() -> Iterator[str]:
    serve.start(http_options={"port": 0})
    yield weft.serve.http_addresses()[0]
    serve.shutdown()


def asked(address: str) -> tuple[int, str]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.status, answer.read().decode()


def test_a_deployment_gets_the_request_and_may_answer_with_a_response_of_starlettes(address: str) -> None:
    from starlette.responses import StreamingResponse

    @serve.deployment(graceful_shutdown_wait_loop_s=1, ray_actor_options={"num_cpus": 0})
    class Plain:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()

        def __call__(self, request: Any) -> Any:
            return request.query_params

    @serve.deployment
    async def streams(request: Any) -> Any:
        async def pieces() -> AsyncIterator[str]:
            for number in range(3):
                yield f"{number} "

        return StreamingResponse(pieces(), status_code=201)

    serve.run(Plain.bind())
    serve.run(streams.options(num_replicas=1, max_replicas_per_node=2).bind(), name="s", route_prefix="/streams")
    status, body = asked(f"{address}/?a=1&b=x")
    assert (status, json.loads(body)) == (200, {"a": "1", "b": "x"})
    assert asked(f"{address}/streams") == (201, "0 1 2 ")
    assert serve.status().applications["s"].status == "RUNNING"


def test_handles_take_values_and_give_refs(address: str) -> None:
    @serve.deployment
    def double(value: int) -> int:
        return 2 * value

    @serve.deployment
    class Asks:
        def __init__(self, handle: Any) -> None:
            self.handle = handle.options(_by_reference=True)

        async def __call__(self, value: int) -> Any:
            ref = await self.handle.remote(value)._to_object_ref()
            context = serve.get_replica_context()
            return await ref, context.app_name, context.deployment

    handle = serve.run(Asks.bind(double.bind()), name="asks")
    assert handle.remote(4).result() == (8, "asks", "Asks")


def test_what_weft_cannot_do_is_refused_by_name() -> None:
    def app() -> int:
        return 1

    with pytest.raises(NotImplementedError, match="request_router_config"):
        serve.deployment(request_router_config=object())(app)
    with pytest.raises(NotImplementedError, match="gang_scheduling_config"):
        serve.deployment(gang_scheduling_config=object())(app)
    made = serve.deployment(num_replicas="auto", placement_group_bundles=[{"CPU": 1}])(app)
    assert made.config.autoscaling.max_replicas == 100 and made.func_or_class is app
    assert made.config.placement_group_bundles == ({"CPU": 1},)


class OneMore:
    """Asks for one replica more each time, until there are so many."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, int]]:
        asyncio.get_running_loop()  # there is one, for policies that look elsewhere meanwhile
        asked = context.policy_state.get("asked", 1) + 1
        return min(asked, self.most, context.capacity_adjusted_max_replicas), {"asked": asked}


def test_a_policy_of_ones_own_says_how_many_replicas_there_are(address: str) -> None:
    scaling = {
        "max_replicas": 4,
        "upscale_delay_s": 0,
        "policy": {"policy_function": OneMore, "policy_kwargs": {"most": 2}},
    }

    @serve.deployment(autoscaling_config=scaling, ray_actor_options={"num_cpus": 0})
    class Grows:
        def __call__(self) -> int:
            return os.getpid()

    handle = serve.run(Grows.bind(), name="grows", route_prefix=None)
    assert comes_true(lambda: len({handle.remote().result() for _ in range(20)}) == 2)
    serve.delete("grows")
    with pytest.raises(TypeError, match="a function, a class or its place"):
        AutoscalingPolicy(policy_function=3)


# ---- train and tune --------------------------------------------------------------------------------


def loop(config: dict[str, Any]) -> int:
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            ray.train.report(
                {"step": step, "size": ray.train.get_context().get_world_size()},
                checkpoint=Checkpoint.from_directory(folder),
            )
    return config["x"] + 1


def test_a_loop_runs_in_workers_and_its_result_is_rays(tmp_path: Path) -> None:
    run = RunConfig(name="run", storage_path=str(tmp_path))
    trainer = DataParallelTrainer(
        loop, train_loop_config={"x": 1}, scaling_config=ScalingConfig(num_workers=2), run_config=run
    )
    result = trainer.fit()
    assert (result.metrics, result.return_value) == ({"step": 2, "size": 2}, 2)
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2]
    assert len(result.best_checkpoints) == 3
    best = result.get_best_checkpoint("step", "min")
    assert best is not None
    with best.as_directory() as folder:
        assert Path(folder, "step").read_text() == "0"
    assert ray.train.Result.from_path(result.path).metrics["step"] == 2


def test_a_loop_that_fails_is_tried_again_from_its_checkpoint_as_often_as_it_may(tmp_path: Path) -> None:
    def fails() -> None:
        checkpoint = ray.train.get_checkpoint()
        step = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        ray.train.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        if step < 2:
            raise ValueError(f"at step {step}")

    allowed = RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=2))
    assert DataParallelTrainer(fails, run_config=allowed).fit().metrics["step"] == 2
    with pytest.raises(ray.train.TrainingFailedError) as caught:
        DataParallelTrainer(fails, run_config=RunConfig(storage_path=str(tmp_path))).fit()
    assert isinstance(caught.value, ray.train.WorkerGroupError)
    assert isinstance(caught.value.worker_failures[0], ValueError)


def test_a_training_inside_of_a_trial_tells_the_trial(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        run = RunConfig(storage_path=str(tmp_path / "train"), callbacks=[TuneReportCallback()])
        DataParallelTrainer(loop, train_loop_config=config, run_config=run).fit()

    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(trial, param_space={"x": 1}, run_config=run).fit()
    assert result.error is None and result.metrics["step"] == 2
    assert os.path.basename(result.metrics["checkpoint_path"])


def test_the_checkpoints_of_a_trial_that_are_kept_are_told(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        for step in range(4):
            kept = Checkpoint.from_dict({"step": step}) if step % 2 else None
            ray.train.report({"step": step}, checkpoint=kept)
        assert config["x"] or os.path.exists(tmp_path / "mended")

    run = tune.RunConfig(name="kept", storage_path=str(tmp_path), verbose=0)
    grid = tune.Tuner(trial, param_space={"x": tune.grid_search([0, 1])}, run_config=run).fit()
    assert len(grid.errors) == 1
    assert [metrics[TRAINING_ITERATION] for _, metrics in grid[1].best_checkpoints] == [2, 4]
    assert grid[1].get_best_checkpoint("step", "min").to_dict() == {"step": 1}
    (tmp_path / "mended").touch()
    again = tune.Tuner.restore(str(tmp_path / "kept"), trial, restart_errored=True).fit()
    assert not again.errors


def test_datasets_have_rays_methods_and_keywords() -> None:
    import pandas as pd
    import pyarrow as pa
    import ray.data as rd
    from ray.data.aggregate import Count, Mean
    from ray.data.context import DataContext

    frames = [pd.DataFrame({"a": [i, i + 1], "b": ["x", "y"]}) for i in range(3)]
    ds = rd.from_pandas_refs([ray.put(frame) for frame in frames])
    assert ds.schema(fetch_if_missing=True).names == ["a", "b"]
    assert isinstance(ds.schema().base_schema, pa.Schema) and not isinstance(ds, rd.MaterializedDataset)
    kept = ds.materialize()
    assert isinstance(kept, rd.MaterializedDataset) and kept.is_fully_executed() and kept.size_bytes() > 0
    doubled = ds.select_columns(["a"]).add_column("c", lambda frame: frame.a * 2)
    assert doubled.sort("a", descending=True).take(1) == [{"a": 3, "c": 6}]
    assert [len(frame) for frame in ray.get(ds.to_pandas_refs())] == [2, 2, 2]
    same = ds.map_batches(
        lambda table: table, batch_format="pyarrow", compute=rd.TaskPoolStrategy(), zero_copy_batch=True
    )
    assert same.count() == 6
    assert ds.groupby("b").sum("a").sort("b").take_all() == [{"b": "x", "sum(a)": 3}, {"b": "y", "sum(a)": 6}]
    (mean,) = ds.groupby("b").aggregate(Mean("a"), Count()).filter(lambda row: row["b"] == "x").take_all()
    assert mean == {"b": "x", "mean(a)": 1.0, "count()": 3}
    assert [part.count() for part in ds.train_test_split(0.5)] == [3, 3]
    assert ds.rename_columns({"a": "z"}).drop_columns(["b"]).columns() == ["z"]
    assert rd.FileExtensionFilter("csv")(["a.csv", "b.txt"]) == ["a.csv"]
    DataContext.get_current().execution_options.preserve_order = False
    assert rd.DataContext.get_current().execution_options.preserve_order is False


def test_a_job_is_described_by_one_object_and_clouds_are_refused() -> None:
    import ray.autoscaler.sdk

    job = ray.job_config.JobConfig(runtime_env={"env_vars": {"A": "1"}}, ray_namespace="here")
    assert job.given() == {"runtime_env": {"env_vars": {"A": "1"}}, "namespace": "here"}
    ray.autoscaler.sdk.request_resources(num_cpus=4)
    with pytest.raises(NotImplementedError, match="ray start"):
        ray.autoscaler.sdk.create_or_update_cluster({})


def test_spaces_stoppers_and_loggers_are_where_ray_has_them() -> None:
    from ray.serve.exceptions import BackPressureError, RayServeException
    from ray.tune.analysis import ExperimentAnalysis
    from ray.tune.logger import JsonLoggerCallback, pretty_print
    from ray.tune.search.basic_variant import BasicVariantGenerator
    from ray.tune.search.sample import Categorical, Domain, uniform
    from ray.tune.stopper import MaximumIterationStopper, NoopStopper, TimeoutStopper

    assert isinstance(uniform(0, 1), Domain) and isinstance(tune.choice([1]), Categorical)
    assert not NoopStopper()("trial", {}) and TimeoutStopper(0).stop_all() and not TimeoutStopper(1e6)("trial", {})
    assert issubclass(BackPressureError, RayServeException)
    assert pretty_print({"a": 1, "b": None}) == '{\n  "a": 1\n}'
    analysis = tune.run(
        lambda config: {"score": config["x"]},
        config={"x": tune.grid_search([1, 2, 3])},
        metric="score",
        mode="max",
        search_alg=BasicVariantGenerator(),
        stop=MaximumIterationStopper(1),
        callbacks=[JsonLoggerCallback()],
        storage_path=tempfile.mkdtemp(),
    )
    assert isinstance(analysis, ExperimentAnalysis) and analysis.best_config == {"x": 3}
