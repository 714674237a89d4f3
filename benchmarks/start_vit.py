"""Does a vision transformer go on better by all its weights, or by low-rank changes (LoRA)?

    python benchmarks/start_vit.py DATA_FOLDER --json benchmarks/results/start_vit.json

The start is vit_tiny_patch16_224 at 32 pixels with labels of CIFAR-100, trained by this command and
kept in --starts. It goes on with 2,000 CIFAR-10 images without labels, by the default method; a
linear probe is fitted on them and scored on 3,000 further images of the training file. LoRA freezes
the start and adds a product of two thin matrices to the weights of attention and of the MLP (Hu et
al. 2021, "LoRA: low-rank adaptation of large language models", section 4.1), one of which starts at
zero. Each rate is that of projector and rows too, unlike that of `--init`. Several rates each, one
seed: a choice, not a result.

DATA_FOLDER holds cifar100_train.npz and cifar10_train.npz. The file is rewritten after every run,
and runs that it already holds are not repeated.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from study import Results, Run, accuracies, validation_sets
from widefield.config.resolve import RunContext, resolve
from widefield.data import Dataset, Loader
from widefield.encoders import Encoder, load_encoder
from widefield.probes import extract
from widefield.train.build import DataInfo, build
from widefield.train.distributed import Compute
from widefield.train.loop import Trainer
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

VIT: dict[str, Any] = {"encoder": "vit_tiny_patch16_224", "stem": "native"}
START_EPOCHS, IMAGES, EPOCHS, BATCH, SEED = 2, 2000, 12, 64, 0
RANK = 8
QUIET: dict[str, Any] = {"checkpoint_every": 10_000, "health_every": 10_000, "quiet": True}
ARMS: dict[str, tuple[bool, float]] = {
    "all weights, lr x 0.1": (False, 0.1),
    "all weights, lr x 0.3": (False, 0.3),
    "all weights, lr x 1": (False, 1.0),
    "LoRA, lr x 0.3": (True, 0.3),
    "LoRA, lr x 1": (True, 1.0),
    "LoRA, lr x 3": (True, 3.0),
}
"""Name -> whether it is LoRA, and the rate as a multiple of the family's."""


class LowRank(nn.Module):
    """Add B A to a weight [out, in], with A [rank, in] at random and B [out, rank] zero."""

    def __init__(self, weight: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        wide, narrow = weight.shape
        self.a = nn.Parameter(torch.randn(RANK, narrow, generator=generator) / narrow**0.5)
        self.b = nn.Parameter(torch.zeros(wide, RANK))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        return weight + self.b @ self.a


def with_lora(encoder: Encoder) -> Encoder:
    """Freeze an encoder, and let low-rank changes of its blocks' weights be trained."""
    generator = torch.Generator().manual_seed(SEED)
    encoder.requires_grad_(False)
    layers = [m for n, m in encoder.named_modules() if isinstance(m, nn.Linear) and "blocks" in n]
    assert layers
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, generator))
        layer.parametrizations["weight"][0].requires_grad_(True)
    return encoder


def adapted(start: Path, data: Dataset, *, lora: bool, scale: float) -> Encoder:
    """Go on from the start with all its weights, or with LoRA."""
    device = torch.device("cpu")
    settings = {**VIT, "epochs": EPOCHS, "batch_size": BATCH, "seed": SEED}
    recipe, _ = resolve("default", settings, RunContext.of(data, device=device))
    recipe = recipe.changed({"lr": scale * recipe.method.lr})
    encoder = load_encoder(start)
    state = build(
        recipe, DataInfo.of(data), device=device, encoder=with_lora(encoder) if lora else encoder
    )
    loader = Loader(data, batch_size=BATCH, device=device, seed=SEED)
    compute = Compute(device, "32-true")
    Trainer(state, compute=compute, loader=loader).fit(EPOCHS, on_step=_pass, on_epoch=_pass)
    return encoder.eval()


def _pass(metrics: StepMetrics) -> None:
    """Leave a step as it is."""


def trained_start(folder: Path, starts: Path) -> Path:
    """Return the run that trained the start, trained now if it is not in `starts`."""
    run = starts / "vit"
    if not (run / "encoder.safetensors").exists():
        data = f"{folder}/cifar100_train.npz"
        pretrain(data, out=run, method="supervised", epochs=START_EPOCHS, lr=1e-3, **VIT, **QUIET)
    return run


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    facts = {"images": IMAGES, "epochs": EPOCHS, "batch_size": BATCH, "rank": RANK, "seed": SEED}
    return {"command": "python benchmarks/start_vit.py DATA_FOLDER", **facts}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--starts", type=Path, default=Path("starts"))
    args = parser.parse_args()
    results = Results(args.json, _summary)
    sets = validation_sets(args.folder / "cifar10_train.npz", "", IMAGES, SEED)
    start = trained_start(args.folder, args.starts)

    def score(encoder: Encoder) -> float:
        return accuracies(lambda images: extract(encoder, images), *sets)["class"]

    if "frozen" not in results:
        results.add("frozen", {"class": score(load_encoder(start))})
    for name, (lora, scale) in ARMS.items():
        if name not in results:
            began = time.process_time()
            encoder = adapted(start, sets[0], lora=lora, scale=scale)
            seconds = round(time.process_time() - began, 1)
            results.add(name, {"class": score(encoder), "processor_seconds": seconds})


if __name__ == "__main__":
    main()
