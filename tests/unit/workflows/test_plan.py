"""What a plan says, against the sizes of what a run holds."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.config.recipes import make_recipe
from widefield.encoders import build_encoder, layer_names, save_encoder
from widefield.probes import monitor as findings
from widefield.train.build import DataInfo, build
from widefield.views import build_views
from widefield.workflows.plan import Plan, plan

N, BATCH, DIM, SIDE = 96, 16, 12, 16
SHORT: dict[str, Any] = {
    "max_examples": N,
    "batch_size": BATCH,
    "image_size": SIDE,
    "encoder": "resnet-tiny",
    "device": "cpu",
}
SMALL: dict[str, Any] = {**SHORT, "projector_width": 32, "projector_dim": DIM}
"""The same for a method with a projector."""


def weight_bytes(method: str, **settings: Any) -> tuple[int, int]:
    """Return bytes of parameters and buffers, and of parameters, both without a dense head."""
    facts = DataInfo(examples=N, image_size=SIDE, labels={})
    recipe = make_recipe(method=method, **settings)
    model = build(recipe, facts, device=torch.device("cpu")).model
    head = sum(p.nbytes for p in model.method.head_parameters())
    parameters = sum(p.nbytes for p in model.parameters()) - head
    return parameters + sum(b.nbytes for b in model.buffers()), parameters


def check_totals(ahead: Plan) -> None:
    parts = ahead.parts
    assert ahead.examples == N
    assert ahead.steps_per_epoch == N // BATCH
    assert ahead.epoch_seconds > 0
    assert parts["data"].bytes == N * SIDE * SIDE * 3
    assert parts["activations"].bytes > 0
    assert ahead.device_bytes == sum(p.bytes for p in parts.values() if p.place == "device")
    assert ahead.host_bytes > sum(p.bytes for p in parts.values() if p.place != "disk")
    said = ahead.to_json()
    assert said["head_bytes"] == parts["head"].bytes
    assert said.keys() >= {"host_bytes", "device_bytes", "head_bytes", "epoch_seconds"}


@pytest.mark.parametrize(
    ("settings", "moments"),
    [
        ({"head_storage": "host"}, 8 * N * DIM),
        ({"head_storage": "disk"}, 8 * N * DIM),
        ({"head_storage": "disk", "head_moments": "bf16"}, 4 * N * DIM),
        ({"head_storage": "host", "head_second_moment": "row"}, 4 * N * DIM + 4 * N),
    ],
)
def test_rows_are_counted_where_they_will_live(settings: dict[str, Any], moments: int) -> None:
    ahead = plan("photos", **SMALL, **settings)
    check_totals(ahead)
    held, parameters = weight_bytes("s-diet", **SMALL)
    assert ahead.parts["head"].bytes == 4 * N * DIM
    assert ahead.parts["moments"].bytes == moments
    assert {ahead.parts[name].place for name in ("head", "moments")} == {settings["head_storage"]}
    assert ahead.parts["weights"].bytes == held
    assert ahead.parts["optimizer"].bytes == 2 * parameters


def test_a_dense_head_is_on_the_device_and_others_have_none() -> None:
    diet, simclr = plan("photos", method="diet", **SHORT), plan("photos", method="simclr", **SMALL)
    assert diet.parts["head"].bytes == 4 * N * 128
    assert diet.parts["moments"].bytes == 2 * diet.parts["head"].bytes
    assert diet.parts["head"].place == "device"
    assert simclr.parts["head"].bytes == simclr.parts["moments"].bytes == 0
    for ahead, method, settings in ((diet, "diet", SHORT), (simclr, "simclr", SMALL)):
        check_totals(ahead)
        held, parameters = weight_bytes(method, **settings)
        assert ahead.parts["weights"].bytes == held
        assert ahead.parts["optimizer"].bytes == 2 * parameters


@pytest.mark.parametrize("method", ["diet", "diet-mse"])
@pytest.mark.parametrize(("optimizer", "moments"), [("sgd", 1), ("adamw", 2)])
def test_moments_of_a_dense_head_are_those_that_its_optimizer_holds(
    method: str, optimizer: str, moments: int
) -> None:
    ahead = plan("photos", **{**SHORT, "method": method, "optimizer": optimizer})
    check_totals(ahead)
    _, parameters = weight_bytes(method, **SHORT)
    assert ahead.parts["moments"].bytes == moments * ahead.parts["head"].bytes > 0
    assert ahead.parts["optimizer"].bytes == moments * parameters


def test_views_that_learn_are_players_too() -> None:
    fixed, learned = (
        plan("photos", method="simclr", views=views, **SMALL) for views in ("none", "viewmaker")
    )
    check_totals(learned)
    viewmaker = build_views("viewmaker", channels=3)
    parameters = sum(p.nbytes for p in viewmaker.parameters())
    more = {name: learned.parts[name].bytes - fixed.parts[name].bytes for name in fixed.parts}
    assert more["weights"] == parameters + sum(b.nbytes for b in viewmaker.buffers())
    assert more["optimizer"] == 2 * parameters
    assert more["activations"] > 0


def test_activations_grow_with_the_batch() -> None:
    small, large = (
        plan("photos", **{**SMALL, "image_size": 32, "batch_size": b}) for b in (16, 96)
    )
    assert large.parts["activations"].bytes > 2 * small.parts["activations"].bytes


@pytest.mark.parametrize("method", ["s-diet", "simclr"])
def test_the_health_check_sees_as_many_images_as_that_of_a_run(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory counts too, and of methods with rows the trial holds a few examples alone."""
    seen: list[int] = []
    extract = findings.extract

    def counted(encoder: nn.Module, images: NDArray[np.uint8], **settings: Any) -> Tensor:
        seen.append(len(images))
        return extract(encoder, images, **settings)

    monkeypatch.setattr(findings, "extract", counted)
    plan("photos", **{**SMALL, "method": method, "max_examples": 200, "batch_size": 4})
    assert seen == [200]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size is 97 and there are 96 examples"):
        plan("photos", **{**SMALL, "batch_size": 97})


def test_a_time_becomes_epochs_of_each_way(tmp_path) -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    save_encoder(encoder, tmp_path / "start")
    ahead = plan("photos", init=str(tmp_path / "start"), minutes=2, **SHORT)
    untrained, last, every = ahead.ways
    assert not untrained.options
    assert untrained.seconds < every.seconds == ahead.epoch_seconds
    layers = len(layer_names(encoder))
    assert last.options == f"freeze_blocks={layers - 1} epochs={int(120 / last.seconds)}"
    assert every.options == f"epochs={int(120 / every.seconds)}"
    table = ahead.tables()[1]
    assert table.title == "within 2 minutes on this machine"
    assert "the measurements at the end of a run take time of their own" in table.lines[0]
    assert ahead.to_json()["ways"][2]["options"] == every.options
    # From random weights all layers are trained; where no epoch fits, there are fewer examples.
    (only,) = plan("photos", minutes=1e-4, **SHORT).ways
    assert only.options == f"epochs=1 max_examples={BATCH}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": "photos", "minutes": 0}, "minutes must be above 0, not 0"),
        ({"examples": 1e6, "minutes": 5}, "minutes is for data: give DATA"),
    ],
)
def test_a_time_that_cannot_be_planned_for_is_refused(arguments, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan(**arguments)
