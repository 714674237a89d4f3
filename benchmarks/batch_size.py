"""How large should a batch be where images are few?

    python benchmarks/batch_size.py cifar10_train.npz --json benchmarks/results/batch_size.json

Plain CIFAR-10 images, resnet-tiny, view-contrast; every run is shown 24,000 images, counted
with repetition. A linear probe is fitted on the images that were trained on and scored on 3,000
further images of the file, one seed. The file is rewritten after every run, and runs that it
already holds are not repeated.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from study import Results, Run, accuracies, train, validation_sets
from widefield.probes import extract

IMAGES = (500, 2000)
BATCHES = (32, 64, 128, 256)
METHOD, SHOWN, SEED = "view-contrast", 24_000, 0


def run(file: Path, images: int, batch: int) -> Run:
    """Train once and score once."""
    epochs = SHOWN // images
    trained = train(
        str(file), method=METHOD, max_examples=images, epochs=epochs, batch_size=batch, seed=SEED
    )
    sets = validation_sets(file, "", images, SEED)
    return {
        "images": images,
        "batch_size": batch,
        "epochs": epochs,
        "accuracy": accuracies(partial(extract, trained.encoder), *sets),
        "processor_seconds": trained.processor_seconds,
    }


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    command = "python benchmarks/batch_size.py cifar10_train.npz"
    return {"command": command, "images_shown": SHOWN, "seed": SEED}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    results = Results(args.json, _summary)
    for images in IMAGES:
        for batch in BATCHES:
            key = f"{images} images | batches of {batch}"
            if key not in results:
                results.add(key, run(args.train, images, batch))


if __name__ == "__main__":
    main()
