"""Ray's libraries where `import ray` finds Weft. Run by `test_ray_words.py`, with `python -m weft.compat`."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.train
from ray import serve, tune
from ray.serve.config import AutoscalingContext
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.result import TRAINING_ITERATION

import weft.serve


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
    def policy(context: AutoscalingContext) -> int:
        return 1

    with pytest.raises(NotImplementedError, match="no autoscaling policy of Ray's"):
        serve.deployment(autoscaling_config={"max_replicas": 2, "policy": policy})(policy)
    with pytest.raises(NotImplementedError, match="placement_group_bundles"):
        serve.deployment(placement_group_bundles=[{"CPU": 1}])(policy)
    made = serve.deployment(num_replicas="auto")(policy)
    assert made.config.autoscaling.max_replicas == 100 and made.func_or_class is policy


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
