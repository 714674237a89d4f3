"""Losses and a training run beside those of lightly and solo-learn.

Neither is a dependency: `pip install --no-deps lightly lightly_utils solo-learn` for this study
alone, in an environment of its own.
"""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from studies.s_diet import T5_CIFAR10
from studies.study import CHANCE_10, TOGETHER, Arm, Finding, Measured, Scale, ScaleName, Study
from studies.trained import Trained, accuracies
from widefield import losses as ours
from widefield.config.recipes import make_recipe
from widefield.methods import SimCLRConfig
from widefield.train.build import DataInfo, build_run_encoder, run_rates

OFF = 0.0051
"""Weight of Barlow Twins' off-diagonal terms."""


def _package(name: str) -> Path:
    """Return the folder of a package of others."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ValueError(
            f"{name} is not installed: pip install --no-deps lightly lightly_utils solo-learn"
        )
    return Path(found.submodule_search_locations[0])


def _of_solo(name: str, function: str) -> Callable[..., Tensor]:
    """Return a loss of solo-learn from its file: the package imports what is not needed here."""
    path = _package("solo") / "losses" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"solo_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)  # type: ignore[no-any-return]


def loss_pairs(z1: Tensor, z2: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return our value and theirs of each loss, of projections z1, z2 [b, m]."""
    _package("lightly")
    from lightly.loss import BarlowTwinsLoss, NegativeCosineSimilarity, NTXentLoss

    barlow = ours.barlow_twins(z1, z2, off_diagonal_weight=OFF)
    cosine = ours.negative_cosine(z1, z2)
    return {
        "NT-Xent, lightly": (ours.nt_xent(z1, z2, temperature=0.2), NTXentLoss(0.2)(z1, z2)),
        "NT-Xent, solo-learn": (
            ours.nt_xent(z1, z2, temperature=0.2),
            _of_solo("simclr", "simclr_loss_func")(z1, z2, temperature=0.2),
        ),
        "Barlow Twins, lightly": (barlow, BarlowTwinsLoss(lambda_param=OFF)(z1, z2)),
        "Barlow Twins, solo-learn": (
            barlow,
            _of_solo("barlow", "barlow_loss_func")(z1, z2, lamb=OFF, scale_loss=1.0),
        ),
        "SimSiam, lightly": (cosine, NegativeCosineSimilarity()(z1, z2)),
        "SimSiam, solo-learn": (cosine, _of_solo("simsiam", "simsiam_loss_func")(z1, z2)),
        "BYOL, solo-learn": (
            ours.prediction_error(z1, z2),
            _of_solo("byol", "byol_loss_func")(z1, z2),
        ),
    }


class PilImages(torch.utils.data.Dataset[Any]):
    """Images as PIL's, as lightly's transforms take them."""

    def __init__(self, images: Any, transform: Callable[[Image.Image], list[Tensor]]) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> list[Tensor]:
        return self.transform(Image.fromarray(self.images[i]))


def trained_by_lightly(one: Trained) -> nn.Module:
    """Return the encoder after SimCLR in the loop of lightly's documentation.

    Its views, projection head and loss; the widths, temperature and learning rates are those of
    the arm, and so are the first weights of the encoder.
    """
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform

    data, settings = one.train_set(), T5_CIFAR10.scales["cpu"].of_method["simclr"]
    recipe = make_recipe(
        method="simclr",
        encoder=one.scale.encoder,
        seed=one.seed,
        epochs=one.scale.epochs,
        **settings,
    )
    assert isinstance(recipe.method, SimCLRConfig)
    projector = recipe.method.projector
    torch.manual_seed(one.seed)
    backbone = build_run_encoder(recipe, DataInfo.of(data), one.device)
    head = SimCLRProjectionHead(backbone.dim, projector.width, projector.dim).to(one.device)
    size = data.images.shape[1]
    transform = SimCLRTransform(size, cj_strength=0.5, gaussian_blur=0.0, normalize=None)
    loader = torch.utils.data.DataLoader(
        PilImages(data.images, transform), recipe.batch_size, shuffle=True, drop_last=True
    )
    criterion = NTXentLoss(temperature=recipe.method.temperature)
    both = nn.ModuleList([backbone, head]).train()
    optimizer = torch.optim.AdamW(both.parameters(), weight_decay=recipe.weight_decay)
    rates = iter(run_rates(recipe, len(data)).tolist())
    for _ in range(recipe.epochs):
        for x0, x1 in loader:
            optimizer.param_groups[0]["lr"] = next(rates)
            z0, z1 = (head(backbone(x.to(one.device))) for x in (x0, x1))
            loss = criterion(z0, z1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return backbone.eval()


def _losses(trained: Mapping[str, Trained]) -> Measured:
    seed = trained["untrained"].seed
    z1, noise = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(seed))
    return {
        f"{name}: relative difference": abs(float(mine / theirs) - 1)
        for name, (mine, theirs) in loss_pairs(z1, z1 + noise).items()
    }


def _loops(trained: Mapping[str, Trained]) -> Measured:
    one = trained["simclr"]
    encoders = one.encoder, trained_by_lightly(one)
    mine, theirs = (accuracies(encoder, one.test_sets()) for encoder in encoders)
    return {"ours, %": mine["class"], "lightly's loop, %": theirs["class"]}


MISSING: Mapping[ScaleName, str] = {
    "tiny": "it needs lightly and solo-learn",
    "gpu": "it compares implementations",
}
LOSSES = Study(
    id="losses-of-others",
    question="Are our losses those of lightly and solo-learn?",
    scales={"cpu": Scale(images=100, epochs=1, minutes=1)},
    missing=MISSING,
    arms={"untrained": Arm(data="cifar10", settings=None)},
    together=_losses,
    findings=(
        Finding(
            id="losses of others",
            criterion="every loss is equal to theirs to 0.0001 of its value",
            value=lambda runs: 1e-4 - max(runs[TOGETHER].values()),
        ),
    ),
)
LOOP = Study(
    id="loop-of-lightly",
    question="Does SimCLR in lightly's documented loop give the accuracy of ours?",
    scales={"cpu": T5_CIFAR10.scales["cpu"]},
    missing=MISSING,
    arms={"simclr": T5_CIFAR10.arms["simclr"]},
    together=_loops,
    findings=(
        Finding(
            id="SimCLR of lightly",
            criterion="the class after lightly's loop differs by less than 4 points",
            value=lambda runs: (
                4 - abs(runs[TOGETHER]["ours, %"] - runs[TOGETHER]["lightly's loop, %"])
            ),
            valid=lambda runs: runs[TOGETHER]["ours, %"] > CHANCE_10,
        ),
    ),
)

STUDIES = [LOSSES, LOOP]
