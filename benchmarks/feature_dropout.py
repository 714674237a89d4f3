"""Feature-dropout histograms of expert and viewmaker views on images with planted shapes.

    python benchmarks/feature_dropout.py CIFAR10_TRAIN.npz CIFAR10_TEST.npz \
        --json benchmarks/results/feature_dropout.json --figure docs/feature_dropout.png --runs RUNS

Two encoders are trained by SimCLR, one under each policy. Views of each policy, as it is at the
end of its run, are judged by two classifiers: that of the other run's encoder, as in Feature
Dropout (Tamkin et al. 2022), Figure 3, and that of an encoder trained with the task's labels. The
second is there because a judge that cannot tell plain images apart says nothing about views: look
at the rows of `none` first. What was trained is kept in `--runs`; what was interrupted goes on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from dropout_histogram import BINS, DropoutHistogram, feature_dropout
from widefield.audits.bounds import train_supervised
from widefield.core.hardware import choose_device, machine
from widefield.data import open_dataset
from widefield.encoders import Encoder, build_encoder, load_encoder, save_encoder
from widefield.inference.run_views import run_views
from widefield.inference.splits import TrainTest
from widefield.workflows.pretrain import pretrain

POLICIES = ("expert", "viewmaker")
TASKS = ("class", "shapes")
SUPERVISED = "supervised"


class Judged(NamedTuple):
    """Views of one policy, and plain images, in the eyes of one judge."""

    policy: str
    task: str
    judge: str
    plain: DropoutHistogram
    drawn: DropoutHistogram

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = {"policy": self.policy, "judge": self.judge}
        return {
            **self.drawn.to_json(),
            **names,
            "plain": {**self.plain.to_json(), "judge": self.judge},
        }


def trained(policy: str, args: argparse.Namespace) -> Path:
    """The run under `policy`, trained now or found."""
    run: Path = args.runs / policy
    pretrain(
        f"{args.train}+shapes",
        out=run,
        resume=run.exists(),
        method="simclr",
        views=policy,
        encoder="resnet-tiny",
        max_examples=args.max_examples,
        image_size=args.image_size,
        epochs=args.epochs,
        batch_size=64,
        checkpoint_every=1,
        seed=args.seed,
    )
    return run


def histograms(args: argparse.Namespace) -> list[Judged]:
    """Each policy's views, task by task and judge by judge."""
    pair = TrainTest(
        train=open_dataset(
            f"{args.train}+shapes", max_examples=args.max_examples, image_size=args.image_size
        ),
        test=open_dataset(
            f"{args.test}+shapes", max_examples=1200, image_size=args.image_size, held_out=True
        ),
    )
    runs = {policy: trained(policy, args) for policy in POLICIES}
    result = []
    for policy, other in (POLICIES, POLICIES[::-1]):
        views = "expert" if policy == "expert" else run_views(runs[policy])
        for task in TASKS:
            judges = {f"{other} run": runs[other], SUPERVISED: supervised(task, pair, args)}
            for judge, encoder in judges.items():
                plain, drawn = (
                    feature_dropout(encoder, pair, policy_views, task, seed=args.seed)
                    for policy_views in ("none", views)
                )
                result.append(Judged(policy, task, judge, plain, drawn))
    return result


def supervised(task: str, pair: TrainTest, args: argparse.Namespace) -> Encoder:
    """An encoder trained with the labels of `task`, now or found."""
    folder: Path = args.runs / f"supervised-{task}"
    if not folder.exists():
        fresh = build_encoder("resnet-tiny", image_size=args.image_size, seed=args.seed)
        train_supervised(fresh, pair.only(task).train, seed=args.seed)
        save_encoder(fresh, folder)
    return load_encoder(folder)


def draw(judged: list[Judged], path: Path) -> None:
    """One panel for each task and policy, by the supervised judge; plain images as an outline."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained", dpi=110)
    panels = figure.subplots(len(TASKS), len(POLICIES), sharex=True)
    edges = [i / BINS for i in range(BINS + 1)]
    for entry in judged:
        if entry.judge != SUPERVISED:
            continue
        axes = panels[TASKS.index(entry.task)][POLICIES.index(entry.policy)]
        axes.stairs(entry.drawn.counts(), edges, fill=True, color="#0072b2")
        axes.stairs(entry.plain.counts(), edges, color="#555555")
        value = entry.drawn.bimodality
        axes.set_title(
            f"{entry.task} under {entry.policy} views\n"
            f"bimodality {value.coefficient:.2f} [{value.low:.2f}, {value.high:.2f}]",
            fontsize=10,
        )
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("probability of the correct class")
    figure.supylabel("views; gray: plain images", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Train, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--max-examples", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--image-size", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()
    judged = histograms(args)
    report: dict[str, Any] = {
        "machine": machine(choose_device("auto")),
        "data": "cifar10+shapes",
        "budget": {k: getattr(args, k) for k in ("max_examples", "epochs", "image_size", "seed")},
        "seconds_of_last_call": round(time.perf_counter() - began, 1),
        "histograms": [entry.to_json() for entry in judged],
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(report, indent=1) + "\n")
    draw(judged, args.figure)
    print(json.dumps(report["histograms"], indent=1))


if __name__ == "__main__":
    main()
