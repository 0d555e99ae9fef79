"""Models that are sharded over the workers: the curve of one process, with deaths and other numbers of workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import train

torch = pytest.importorskip("torch")
STEPS = 6
DIES_AT = 4


def run(config: dict[str, Any]) -> None:
    """Steps on this worker's share of a batch of 16, with a checkpoint after each."""
    from torch.distributed.checkpoint import state_dict as states

    context = train.get_context()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    model = train.prepare_model(torch.nn.Sequential(*layers), "fsdp", blocks=[torch.nn.Linear])
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    parts, optimizer_parts = states.get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": parts, "optimizer": optimizer_parts, "step": 0}
    if train.load_sharded(state):
        states.set_state_dict(model, optimizer, model_state_dict=parts, optim_state_dict=optimizer_parts)
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))[context.share(16)]
    for step in range(state["step"], config["steps"]):
        if step == DIES_AT and config["dies"] and context.rank == 1 and not os.path.exists(config["dies"]):
            Path(config["dies"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = float(context.group.all_reduce(np.array([loss.item()]), "mean")[0])
        held = sum(getattr(one, "to_local", lambda one=one: one)().numel() for one in model.parameters())
        parts, optimizer_parts = states.get_state_dict(model, optimizer)
        saved = {"model": parts, "optimizer": optimizer_parts, "step": step + 1}
        train.report_sharded({"loss": mean, "held": held}, saved)


def fit(path: Path, workers: int, steps: int = STEPS, dies: str = "", **options: Any) -> Any:
    config = {"steps": steps, "dies": dies}
    return train.Trainer(
        run, workers=workers, backend="torch", config=config, storage_path=path, name="sharded", **options
    ).fit(resume=True)


def losses(result: Any) -> list[float]:
    return [metrics["loss"] for metrics in result.history]


@pytest.fixture(scope="module")
def expected(shared_weft_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of one worker."""
    return fit(tmp_path_factory.mktemp("one"), 1)


def test_two_workers_have_the_curve_of_one_and_half_of_the_parameters_each(expected: Any, tmp_path: Path) -> None:
    result = fit(tmp_path, 2)
    np.testing.assert_allclose(losses(result), losses(expected), rtol=1e-6)
    assert result.metrics["held"] < 0.7 * expected.metrics["held"]


def test_a_worker_that_is_killed_changes_nothing(expected: Any, tmp_path: Path) -> None:
    result = fit(tmp_path, 2, dies=str(tmp_path / "died"))
    assert (tmp_path / "died").exists()
    np.testing.assert_allclose(losses(result), losses(expected), rtol=1e-6)


def test_another_number_of_workers_goes_on_where_the_first_were(expected: Any, tmp_path: Path) -> None:
    fit(tmp_path, 2, steps=3)
    np.testing.assert_allclose(losses(fit(tmp_path, 1)), losses(expected), rtol=1e-6)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="strategy must be 'ddp' or 'fsdp', but got 'zero'"):
        train.prepare_model(torch.nn.Linear(1, 1), "zero")
