"""Which views, and a linear decoder beside the loss or not, keep class and digit in the features?

    python benchmarks/keeping.py cifar10_train.npz --json benchmarks/results/keeping.json

view-contrast, resnet-tiny, CIFAR-10 images, plain and with a planted digit: class and digit by a
linear probe of the pooled features and of the wide readout, fitted on at most 5,000 of the images
and scored on 3,000 further ones of the training file. All else stays at its default. The file is
rewritten after every run, and runs that it already holds are not repeated. With `--runs`, runs stay
in a folder, and finished ones that are there are only scored.
"""

import argparse
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from study import Results, Run, accuracies, train, validation_sets
from widefield import load
from widefield.core.hardware import choose_device
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.encoders import Encoder, Wide
from widefield.evaluation.wide import fit_on_dataset
from widefield.methods import METHODS
from widefield.methods.view_contrast import ViewContrast, ViewContrastConfig
from widefield.probes import extract
from widefield.train.run_dir import RunFolder
from widefield.views.policy import image_views
from widefield.views.registry import VIEWS

CROPS = {
    "crop20noflip": {"crop_scale": (0.2, 1.0), "flip_prob": 0.0},
    "crop40": {"crop_scale": (0.4, 1.0)},
    "crop40noflip": {"crop_scale": (0.4, 1.0), "flip_prob": 0.0},
}
"""Policies between `expert` and `gentle`: area of the crop, and mirroring. The last: `moderate`."""
WEIGHTS = (0.0, 10.0)
EPOCHS = {2000: 15, 5000: 18, 45_000: 4}
"""Images -> epochs of a run."""
PLANTS = {"digits": "+digits", "plain": ""}
FIT = 5000  # images for the probe
SIDE = 16


class Decoder(nn.Module):
    """A linear map from features to a small gray copy of their own view.

    With LN(h) the features of views x [b, C, H, W], each row with mean 0 and variance 1, and g(x)
    the mean over channels, averaged over a grid of 16 x 16 positions,

        t = (g(x) - mean_i g(x_i)) / s,         s the deviation of g(x) over examples and positions
        error = 1/(256 b) sum_i |W LN(h_i) + c - t_i|^2.
    """

    def __init__(self, encoder_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(encoder_dim, SIDE**2)

    @full_precision
    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the error for features h [b, D] of views x [b, C, H, W]."""
        gray = functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), SIDE).flatten(1)
        target = (gray - gray.mean(0)) / gray.std(correction=0)
        return functional.mse_loss(self.linear(functional.layer_norm(h, h.shape[1:])), target)


class Decoded(ViewContrast):
    """view-contrast, plus the error of a decoder of the first view."""

    def __init__(self, encoder_dim: int, config: "DecodedConfig", **data: Any) -> None:
        super().__init__(encoder_dim, config, **data)
        self.decoder = Decoder(encoder_dim)
        self.decoder_weight = config.decoder_weight

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss, for which the first view is encoded once."""
        h = encoder(views[0])
        known: Any = lambda x: h if x is views[0] else encoder(x)  # noqa: E731
        loss = super()._loss(known, views, index)
        error = self.decoder(h, views[0])
        parts = loss.parts | {"decoder_error": error.detach()}
        return Loss(loss.total + self.decoder_weight * error, parts)


@dataclass(frozen=True, kw_only=True)
class DecodedConfig(ViewContrastConfig):
    """Settings of `Decoded`."""

    name: ClassVar[str] = "view-contrast+decoder"
    method_class = Decoded

    decoder_weight: Annotated[float, Ge(0)] = 10.0
    """Weight of the decoder's error."""


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--images", type=int, action="append", choices=EPOCHS)
    parser.add_argument("--data", choices=PLANTS, action="append")
    parser.add_argument("--views", choices=("expert", "gentle", *CROPS), action="append")
    parser.add_argument("--weight", type=float, choices=WEIGHTS, action="append")
    parser.add_argument("--seed", type=int, action="append")
    args = parser.parse_args()
    VIEWS.update({name: image_views(name, **settings) for name, settings in CROPS.items()})
    METHODS[DecodedConfig.name] = DecodedConfig
    results = Results(args.json, _summary)
    for seed, images, views, weight, data in itertools.product(
        args.seed or (0,),
        args.images or (5000,),
        args.views or ("expert", "gentle", *CROPS),
        args.weight or WEIGHTS,
        args.data or PLANTS,
    ):
        key = f"{views} | decoder {weight:g} | {data} | {images} images | seed {seed}"
        if key not in results:
            run = _run(args.train, args.runs and args.runs / key, images, views, weight, data, seed)
            results.add(key, run)
            print(key, run["pooled"], run["wide"], flush=True)


def _run(
    file: Path, out: Path | None, images: int, views: str, weight: float, data: str, seed: int
) -> Run:
    """Train once, or take the finished run in `out`, and score its features."""
    decoder = {"method": DecodedConfig.name, "decoder_weight": weight}
    settings = {
        **(decoder if weight else {"method": ViewContrastConfig.name}),
        "views": views,
        "max_examples": images,
        "epochs": EPOCHS[images],
        "seed": seed,
    }
    encoder, seconds = _finished(out, settings), None
    if encoder is None:
        trained = train(f"{file}{PLANTS[data]}", out=out, **settings)
        encoder, seconds = trained.encoder, trained.processor_seconds
    return {
        "views": views,
        "decoder_weight": weight,
        "data": data,
        "images": images,
        "epochs": EPOCHS[images],
        "seed": seed,
        **pooled_and_wide(encoder, file, PLANTS[data], images, seed),
        "processor_seconds": seconds,
    }


def pooled_and_wide(
    encoder: Encoder, file: Path, plant: str, images: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return the accuracy of every task with the pooled features and with the wide readout."""
    trained_on, others = validation_sets(file, plant, images, seed)
    sets = trained_on.subset(np.arange(min(images, FIT))), others
    wide = Wide(encoder, fit_on_dataset(encoder, trained_on, device=choose_device("auto")))
    width = wide.readout.config.pooled
    return {
        "pooled": accuracies(partial(extract, encoder), *sets),
        "wide": accuracies(partial(extract, wide.eval()), *sets, pooled=width),
    }


def _finished(out: Path | None, settings: dict[str, Any]) -> Encoder | None:
    """Return the encoder of a finished run with these settings, if there is one in `out`."""
    if out is None or not RunFolder(path=out).comparison_file.exists():  # it is written last
        return None
    recipe = RunFolder(path=out).recipe().flat()
    assert {name: recipe[name] for name in settings} == settings, out
    return load(out)


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/keeping.py cifar10_train.npz"}


if __name__ == "__main__":
    main()
