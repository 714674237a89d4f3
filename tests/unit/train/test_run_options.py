"""What the run decays, how it keeps the last batch of an epoch, and how its blocks start."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from runs import images, small
from small_run import small_facts, small_recipe
from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_precision
from widefield.core.types import Batch, Shard
from widefield.data import Loader, open_dataset
from widefield.encoders import EncoderSettings
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.step import TrainStep
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain

CPU = torch.device("cpu")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lars"])
@pytest.mark.parametrize("decay_bias_and_norm", [False, True])
def test_all_parameters_are_decayed_where_the_run_says_so(
    optimizer: str, decay_bias_and_norm: bool
) -> None:
    recipe = small_recipe(
        "simclr", optimizer=optimizer, decay_bias_and_norm=decay_bias_and_norm, weight_decay=0.1
    )
    state = build(recipe, small_facts(), device=CPU)
    decay = {
        id(p): group["weight_decay"]
        for group in state.optimizer.param_groups
        for p in group["params"]
    }
    for parameter in state.model.parameters():
        assert decay[id(parameter)] == (0.1 if decay_bias_and_norm or parameter.ndim > 1 else 0.0)


@pytest.mark.parametrize(("examples", "batch_size"), [(10, 4), (12, 4), (5, 5), (7, 5)])
def test_without_drop_last_an_epoch_shows_every_example(examples: int, batch_size: int) -> None:
    dataset = open_dataset("photos", max_examples=examples)
    loader = Loader(dataset, batch_size=batch_size, device=CPU, drop_last=False)
    for epoch in range(2):
        shown = [batch.index.numpy() for batch in loader.epoch(epoch)]
        assert len(shown) == loader.steps_per_epoch == -(-examples // batch_size)
        assert [len(index) for index in shown[:-1]] == [batch_size] * (len(shown) - 1)
        assert sorted(np.concatenate(shown).tolist()) == list(range(examples))
        again = [batch.index.numpy() for batch in loader.epoch(epoch, start=1)]
        assert all(np.array_equal(a, b) for a, b in zip(again, shown[1:], strict=True))


def test_a_last_batch_of_one_is_left_out_and_a_shared_one_refused() -> None:
    dataset = open_dataset("photos", max_examples=9)
    loader = Loader(dataset, batch_size=4, device=CPU, drop_last=False)
    assert [len(batch.index) for batch in loader.epoch(0)] == [4, 4]
    with pytest.raises(ValueError, match="2 processes cannot share a last batch"):
        Loader(dataset, batch_size=6, device=CPU, shard=Shard(0, 2), drop_last=False)


@pytest.mark.parametrize("method", ["s-diet", "moco"])
def test_a_run_trains_on_the_last_batch_and_resumes(tmp_path: Path, method: str) -> None:
    settings = {**small(method), "max_examples": 40, "drop_last": False}
    whole = pretrain(images(), out=tmp_path / "whole", **settings | {"epochs": 2})
    assert whole.steps == 2 * 3  # 16, 16 and 8 examples
    pretrain(images(), out=tmp_path / "parts", **settings | {"epochs": 1, "schedule": "constant"})
    more = pretrain(images(), out=tmp_path / "parts", resume=True, epochs=2, quiet=True)
    assert more.steps == 6
    ahead = plan(images(), **{k: v for k, v in settings.items() if k != "quiet"})
    assert ahead.steps_per_epoch == 3


def test_the_estimate_of_a_rows_next_visit_does_not_depend_on_the_last_batch() -> None:
    recipe = small_recipe("s-diet", head_update="estimated").changed({"batch_size": 6})
    state = build(recipe, small_facts(12), device=CPU)
    for count in (6, 3):
        x = [torch.rand(count, 3, 16, 16)]
        state.method(state.encoder, x, torch.arange(count)).total.backward()
        state.head_optimizers[0].step()
        assert state.head_optimizers[0].gap == 2  # type: ignore[attr-defined]


def last_gains(encoder: nn.Module) -> list[float]:
    return [
        float(module.bn2.weight.detach().abs().max())  # type: ignore[union-attr, operator]
        for module in encoder.modules()
        if type(module).__name__ == "BasicBlock"
    ]


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_a_step_in_bf16_keeps_windows_far_from_zero(mean: float) -> None:
    """Their units are the user's: bf16 has steps of 4 at 1000."""
    wave = torch.sin(torch.arange(64) * torch.linspace(0.1, 2, 12)[:, None, None, None])
    settings = {"encoder": "conv1d", "batch_size": 12, "epochs": 4}
    losses = []
    for precision in ("32", "bf16"):
        recipe = small_recipe("simclr", "jitter", **{**settings, "precision": precision})
        facts = DataInfo(
            examples=12, image_size=(1, 64), channels=1, labels={}, mean=(mean,), std=(0.7,)
        )
        compute = Compute(CPU, choose_precision(precision, CPU))
        step = TrainStep(build(recipe, facts, device=CPU), compute=compute)
        losses.append(float(step(Batch(x=wave + mean, index=torch.arange(12)))["loss"]))
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.05)


def test_residual_blocks_start_as_the_identity_or_not() -> None:
    for zero_init_last, gain in ((True, 0.0), (False, 1.0)):
        encoder = EncoderSettings(name="resnet18", zero_init_last=zero_init_last).build(seed=0)
        assert last_gains(encoder) == [gain] * 8
    assert make_recipe(zero_init_last=False).encoder.flat()["zero_init_last"] is False


def test_encoders_without_residual_blocks_have_no_start_to_choose() -> None:
    settings = EncoderSettings(name="vit_tiny_patch16_224", zero_init_last=False)
    with pytest.raises(
        ValueError, match=r"'vit_tiny_patch16_224' has no residual blocks.*leave it out"
    ) as e:
        settings.build(seed=0)
    assert "\n" not in str(e.value)


def test_callbacks_count_the_epochs_that_are_finished(tmp_path: Path) -> None:
    steps: list[int] = []
    epochs: list[int] = []
    pretrain(
        images(),
        out=tmp_path / "run",
        **small("simclr") | {"epochs": 3},
        on_step=lambda metrics: steps.append(metrics.epoch),
        on_epoch=lambda metrics: epochs.append(metrics.epoch),
    )
    assert steps == [0] * 4 + [1] * 4 + [2] * 4
    assert epochs == [1, 2, 3]
