"""Trainers with PyTorch's DDP, with JAX, and as trainables of weft.tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import train, tune

STEPS = 4


def torch_curve(share: slice, wrap: Any) -> list[float]:
    """Losses of the whole batch; DDP takes the mean of the workers' gradients, whose shares are equal."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(STEPS):
        loss = ((model(inputs[share]) - inputs[share].sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_nccl_says_what_it_needs_where_no_gpu_is(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("here is a GPU")
    weft.init(num_cpus=2, num_gpus=2)
    try:
        trainer = train.Trainer(
            lambda: None, workers=2, backend="nccl", resources={"CPU": 1, "GPU": 1}, storage_path=tmp_path
        )
        with pytest.raises(RuntimeError, match=r'"nccl" needs a GPU for every worker, but rank [01] on .* has none'):
            trainer.fit()
    finally:
        weft.shutdown()


@pytest.mark.parametrize("backend", ["torch", "gloo"])
def test_ddp_has_the_curve_of_one_process(weft_session: Any, tmp_path: Path, backend: str) -> None:
    pytest.importorskip("torch")

    def loop() -> None:
        context = train.get_context()
        losses = np.array(torch_curve(context.share(16), train.prepare_model))
        for loss in context.group.all_reduce(losses, "mean"):
            train.report({"loss": loss})

    result = train.Trainer(loop, workers=2, backend=backend, storage_path=tmp_path).fit()
    expected = torch_curve(slice(0, 16), lambda model: model)
    np.testing.assert_allclose([metrics["loss"] for metrics in result.history], expected, rtol=1e-5)


def test_jax_sees_the_devices_of_all_workers(weft_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        import jax
        from jax.experimental import multihost_utils

        total = multihost_utils.process_allgather(np.array([jax.process_index() + 1.0])).sum()
        train.report({"devices": jax.device_count(), "local": jax.local_device_count(), "total": float(total)})

    result = train.Trainer(loop, workers=2, backend="jax", storage_path=tmp_path).fit()
    assert result.metrics == {"devices": 2, "local": 1, "total": 3.0}


def test_a_trainer_is_a_trainable(weft_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        context = train.get_context()
        for step in range(2):
            total = context.group.all_reduce(np.array([config["slope"] * (step + 1.0)]))[0]
            train.report({"total": total, "offset": config["offset"]}, checkpoint={"step": step})

    trainer = train.Trainer(loop, workers=1, config={"offset": 7})
    tuner = tune.Tuner(
        trainer,
        param_space={"slope": tune.grid_search([1.0, 3.0])},
        tune_config=tune.TuneConfig(metric="total", mode="max"),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="tuned", verbose=0),
    )
    best = tuner.fit().get_best_result()
    assert best.config == {"slope": 3.0}
    assert (best.metrics["total"], best.metrics["offset"]) == (6.0, 7)
    assert best.checkpoint.to_dict() == {"step": 1}
