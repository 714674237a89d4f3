"""A plan without data: sizes by formula, times as lower bounds, and what is not known."""

from typing import Any

import pytest
import torch
from torch import nn

import widefield
from commands import Command
from pages.format import read
from widefield.core.published import PUBLISHED_DEVICES
from widefield.encoders import build_encoder
from widefield.workflows import plan_examples as module
from widefield.workflows.plan import Plan

N, SIDE, BATCH, DIM = 10**8, 32, 256, 16
SMALL: dict[str, Any] = {
    "examples": 1e8,
    "image_size": SIDE,
    "encoder": "resnet-tiny",
    "projector_width": 32,
    "projector_dim": DIM,
}


def planned(**settings: Any) -> Plan:
    return widefield.plan(**{**SMALL, **settings})


def forward_flops() -> float:
    """Operations of a forward pass on one image: two for each weight of a layer and output."""
    total = 0

    def count(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        nonlocal total
        places = output[0, 0].numel() if isinstance(layer, nn.Conv2d) else 1
        total += 2 * layer.weight.numel() * places

    encoder = build_encoder("resnet-tiny", image_size=SIDE, seed=0)
    for layer in encoder.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    encoder.eval()(torch.rand(1, 3, SIDE, SIDE))
    return total


def test_sizes_follow_formulas_and_the_time_is_a_lower_bound() -> None:
    ahead = planned(device="h100", method="s-diet", head_storage="disk")
    assert ahead.examples == N
    assert ahead.steps_per_epoch == N // BATCH
    assert ahead.parts["data"].bytes == N * SIDE * SIDE * 3
    assert ahead.parts["head"].bytes == 4 * N * DIM
    assert ahead.parts["moments"].bytes == 8 * N * DIM
    assert ahead.parts["head"].place == "disk"
    assert ahead.scale["checkpoint_bytes"] == sum(
        ahead.parts[name].bytes for name in ("weights", "optimizer")
    )
    # One view, forward and backward; the first layer's input needs no gradient, so less than 3.
    peak = PUBLISHED_DEVICES["h100"]
    least = N * 2.5 * forward_flops() / peak.flops
    memory = ahead.steps_per_epoch * 2 * ahead.parts["activations"].bytes / peak.bandwidth
    assert ahead.epoch_seconds is None
    assert ahead.least_epoch_seconds == pytest.approx(max(least, memory), rel=0.2)
    slower = planned(device="l4", method="s-diet", head_storage="disk")
    assert slower.least_epoch_seconds > 5 * ahead.least_epoch_seconds


def test_rows_in_memory_are_in_the_checkpoint_and_a_dense_head_is_on_the_device() -> None:
    host = planned(device="h100", method="s-diet", head_storage="host", examples=1e6)
    rows = 12 * 10**6 * DIM
    assert host.scale["checkpoint_bytes"] > rows
    assert host.host_bytes == round(module.OPEN_BYTES * 10**6) + rows
    dense = widefield.plan(
        examples=1e8, image_size=SIDE, encoder="resnet-tiny", method="diet", device="h100"
    )
    assert dense.parts["head"].place == "device"
    assert dense.parts["moments"].bytes == pytest.approx(2 * dense.parts["head"].bytes)
    assert "do not fit into 80 GB of the device" in dense.notes[-1]
    assert "leave out a dense head beyond its first 4,096 rows" in dense.notes[-2]


def test_costs_of_an_example_are_those_of_the_benchmark() -> None:
    row = max(read("scale")["rows"], key=lambda row: row["examples"])
    measured = [row[key] for key in ("open_seconds", "open_bytes", "manifest_bytes")]
    measured.append(row["shuffle_seconds"])
    used = (module.OPEN_SECONDS, module.OPEN_BYTES, module.TABLE_BYTES, module.SHUFFLE_SECONDS)
    assert used == pytest.approx([value / row["examples"] for value in measured], rel=1e-3)


def test_the_command_says_what_is_an_estimate_and_what_is_not_known(command: Command) -> None:
    words = ["plan", "--examples", "1e8", "--image-size", "32", "--encoder", "resnet-tiny"]
    text = command.text(*words, "--method", "simclr", "--device", "h100")
    assert "100,000,000 examples" in text
    assert "at the published peak of the device: an estimate, nothing was measured" in text
    text = command.text(*words, "--method", "simclr", "--device", "cpu")
    assert "time of an epoch of 390,625 steps: not known without data" in text
    found = command.json(*words, "--method", "simclr", "--device", "h200")
    assert found["epoch_seconds"] is None
    assert found["least_epoch_seconds"] > 0
    assert found["scale"].keys() == {
        *("open_seconds", "shuffle_seconds", "table_bytes", "checkpoint_bytes")
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--examples -5 --image-size 32", "examples is -5; expected a whole number from 1 on"),
        ("--examples 1.5 --image-size 32", "examples is 1.5; expected a whole number"),
        ("--examples inf --image-size 32", "examples is inf; expected a whole number"),
        ("--examples 1e8", "nothing says how large the images are: give --image-size"),
        ("--examples 1e8 --image-size 32 --device b99", "unknown device 'b99': known: auto, cpu"),
        ("--examples 1e8 --image-size 32 --init timm:resnet18", "init needs data: give DATA, or"),
        ("--examples 9 --image-size 32 --batch-size 16", "--batch-size is 16 and there are 9"),
        ("photos --examples 1e8", "--examples plans without data: give DATA, or --examples"),
        ("photos --device h100", "unknown device 'h100': known: auto, cpu, cuda"),
        ("", "there is nothing to plan for: give DATA, or --examples, such as 1e8"),
    ],
)
def test_what_cannot_be_planned_is_refused(command: Command, words: str, said: str) -> None:
    assert said in command.refused("plan", *words.split())
