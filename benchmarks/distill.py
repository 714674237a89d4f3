"""Does a student of a tenth the size keep what a linear probe finds in its teacher?

    python benchmarks/distill.py DATA_FOLDER --teacher FOLDER --json benchmarks/results/distill.json

The teacher (`wide_teacher.py`) is trained with the labels of 12,000 images of CIFAR-100. Students
are resnet-tiny, on 6,000 images of CIFAR-10 without labels: distilled from the teacher; from an
untrained network, the control; and by view-contrast, which takes two views a step and half the
epochs. A linear probe is fitted on the 6,000 images and scored on 6,000 test images. One seed.
--teacher keeps the teacher; --epochs and --images make a smaller trial.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import wide_teacher
from widefield.core.hardware import choose_device, machine
from widefield.data import open_dataset
from widefield.inference.open_encoder import EncoderSpec
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe

NETWORK = f"{Path(wide_teacher.__file__).absolute()}:network"
COMMON: dict[str, Any] = {"checkpoint_every": 10_000, "health_every": 10_000, "quiet": True}
TEACHER_EPOCHS = 5


def images(file: Path, count: int) -> dict[str, Any]:
    """Return a class-balanced part of a file."""
    dataset = open_dataset(file, max_examples=count)
    return {"x": dataset.images, "class": dataset.labels["class"]}


def trained(data: dict[str, Any], out: Path, **settings: Any) -> float:
    """Train a run and return its seconds of the processor."""
    began = time.process_time()
    pretrain(data, out=out, **COMMON, **settings)
    return round(time.process_time() - began, 1)


def main() -> None:
    """Train the teacher if it is missing, then each student, and write the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=6_000)
    args = parser.parse_args()
    teacher = f"{args.teacher}@{NETWORK}"
    seconds: dict[str, float] = {}
    if not args.teacher.exists():
        source = images(args.data / "cifar100_train.npz", 2 * args.images)
        seconds["teacher"] = trained(
            source, args.teacher, encoder=NETWORK, method="supervised", epochs=TEACHER_EPOCHS
        )
    train = images(args.data / "cifar10_train.npz", args.images)
    test = images(args.data / "cifar10_test.npz", args.images)
    students: dict[str, dict[str, Any]] = {
        "distilled": {"teacher": teacher, "epochs": args.epochs},
        "distilled, untrained teacher": {"teacher": NETWORK, "epochs": args.epochs},
        "view-contrast": {"method": "view-contrast", "epochs": max(1, args.epochs // 2)},
    }
    scores: dict[str, float] = {}

    def score(name: str, encoder: EncoderSpec) -> None:
        report = probe(encoder, test, train_data=train, floors=False, quiet=True)
        scores[name] = report.tasks["class"].score.accuracy
        result = {"accuracy": scores, "processor_seconds": seconds, "images": args.images}
        result |= {"epochs": args.epochs, "seeds": [0], "machine": machine(choose_device("auto"))}
        args.json.write_text(json.dumps(result, indent=1) + "\n")
        print(name, scores[name], seconds.get(name), flush=True)

    score("teacher", teacher)
    score("untrained", "random")
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in students.items():
            out = Path(folder) / name
            seconds[name] = trained(train, out, encoder="resnet-tiny", **settings)
            score(name, out)


if __name__ == "__main__":
    main()
