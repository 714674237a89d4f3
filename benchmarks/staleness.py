"""What does it cost that rows of a large data set are old, and what helps?

    python benchmarks/staleness.py cifar10_train.npz cifar10_test.npz \
        --json benchmarks/results/staleness.json

390 steps of 256 CIFAR-10 images, resnet-tiny, at three numbers of images n, so that a row is up to
10, 39 or 195 steps old when its example comes again, n / b. SimCLR has no rows: what n changes for
it is not their age. Then, on all 50,000 images, what might help S-DIET: rows that move faster or
slower, which is a rate that goes by the gap n / b; SGD with momentum; rows that start at random,
as in the paper; terms whose weight falls with the age of their row; and a second view, which is
view-contrast, with three weights of S-DIET's loss.

A linear probe is fitted on 5,000 training images and scored on the test file. `match` is how often
the row of an image, as training left it, is the nearest of 256 to the image's projection: rows in
four groups by their age in steps; chance is 0.4 %. One seed. The file is rewritten after every
run, and runs that it already holds are not repeated.
"""

import argparse
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from study import Results, Run, accuracies, train
from widefield.data import Dataset, open_dataset
from widefield.head import PerExampleHead
from widefield.methods import SDietConfig
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethod
from widefield.probes import extract

FIT = 5000  # images for the probe
BATCH = 256
EPOCHS = {2560: 39, 10_000: 10, 50_000: 2}
"""Images -> epochs of 390 steps."""
HALF_LIFE = 39.0  # steps
SEED = 0


@dataclass(frozen=True, kw_only=True)
class ByAge(SDietConfig):
    """S-DIET whose terms weigh 2^(-age / 39): example and negatives count less, the older a row."""

    def build(self, context: BuildContext) -> Method:
        """Build S-DIET, and tell its loss how old the rows are."""
        method = super().build(context)
        assert isinstance(method, HeadMethod)
        _weigh_by_age(method.head, smoothing=self.label_smoothing)
        return method


def _weigh_by_age(head: PerExampleHead, *, smoothing: float) -> None:
    forward, weights = head.forward, torch.empty(0)

    def compare(z: Tensor, rows: Tensor) -> Tensor:
        logits = z @ rows.T + weights.log()  # a row of weight w counts as w rows in the sum
        target = torch.arange(len(z), device=z.device)
        terms = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="none")
        return (weights * terms).mean()

    def forward_with_ages(z: Tensor, index: Tensor, second: Tensor | None = None) -> Tensor:
        nonlocal weights
        last = head.storage.read(index.cpu()).last
        age = torch.where(last > 0, head.history.steps - last, 0)  # new rows are fresh
        weights = torch.exp2(-age / HALF_LIFE).clamp(min=1e-3).to(z)
        return forward(z, index, second)

    head.compare, head.forward = compare, forward_with_ages  # type: ignore[method-assign]


SIMCLR_RATE = 2e-2
"""The rate of SimCLR that benchmarks/equal_time.py found best on plain images."""
REMEDIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows' rate / 4": ("s-diet", {"head_lr_scale": 0.25}),
    "rows' rate x 4": ("s-diet", {"head_lr_scale": 4.0}),
    "rows' rate x 16": ("s-diet", {"head_lr_scale": 16.0}),
    "rows by SGD with momentum": ("s-diet", {"head_optimizer": "sgd"}),
    "rows start at random": ("s-diet", {"head_init": "random"}),
    "terms weighed by age": (ByAge(), {}),
    "second view, cross-entropy 10": ("view-contrast", {"cross_entropy_weight": 10.0}),
    "second view, cross-entropy 3": ("view-contrast", {"cross_entropy_weight": 3.0}),
}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    results = Results(args.json, _summary)
    cases: list[tuple[str, int, Any, dict[str, Any]]] = [
        *(
            (method, n, method, {})
            for n in EPOCHS
            for method in ("s-diet", "row-contrast", "view-contrast")
        ),
        *((name, max(EPOCHS), *remedy) for name, remedy in REMEDIES.items()),
        *(("simclr", n, "simclr", {"lr": SIMCLR_RATE}) for n in EPOCHS),
    ]
    sets = (
        open_dataset(str(args.train), max_examples=FIT, seed=SEED),
        open_dataset(str(args.test), seed=SEED, held_out=True),
    )
    for name, images, method, settings in cases:
        key = f"{name} | {images}"
        if key not in results:
            results.add(key, _run(args.train, sets, name, images, method, settings))


def _run(
    file: Path,
    sets: tuple[Dataset, Dataset],
    name: str,
    images: int,
    method: Any,
    settings: dict[str, Any],
) -> Run:
    """Train once, and score encoder and rows."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trained = train(
            str(file),
            out=run,
            method=method,
            max_examples=images,
            epochs=EPOCHS[images],
            batch_size=BATCH,
            seed=SEED,
            **settings,
        )
        rows = _rows(run)
    entry = {
        "name": name,
        "images": images,
        "method": method if isinstance(method, str) else method.name,
        "epochs": EPOCHS[images],
        "seed": SEED,
        "settings": settings,
        "class": accuracies(partial(extract, trained.encoder), *sets)["class"],
        "processor_seconds": trained.processor_seconds,
    }
    if rows is None:
        return entry
    assert trained.projected is not None
    dataset = open_dataset(str(file), max_examples=images, seed=SEED)
    z = extract(trained.projected, dataset.images)
    return entry | {"match": _match(z, *rows)}


def _rows(run: Path) -> tuple[Tensor, Tensor] | None:
    """Return the rows [n, m] of a finished run, and the step of each one's last visit [n]."""
    (file,) = (run / "checkpoints").glob("last-step-*-rank-0-of-1.pt")
    state = torch.load(file, weights_only=True)["extra"]
    head = state.get("method.head._extra_state")
    return None if head is None else (head["rows"]["row"], head["rows"]["last"])


def _match(z: Tensor, rows: Tensor, last: Tensor) -> list[dict[str, float]]:
    """Return how often a row is the nearest of 256 to its example, by four ages of rows."""
    z, rows = F.normalize(z, dim=1), F.normalize(rows, dim=1)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(SEED))
    right = torch.empty(len(z))
    for group in order.split(BATCH):
        right[group] = ((z[group] @ rows[group].T).argmax(1) == torch.arange(len(group))).float()
    age = (last.max() - last).float()
    return [
        {"age": round(age[part].mean().item(), 1), "match": round(right[part].mean().item(), 4)}
        for part in age.argsort().chunk(4)
    ]


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/staleness.py cifar10_train.npz cifar10_test.npz"}


if __name__ == "__main__":
    main()
