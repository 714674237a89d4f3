"""Audits made by hand, for tests of what is told of them."""

from typing import Any

import numpy as np

from widefield.audits.pictures import ImageMap, ImageRow, Pictures
from widefield.audits.planting import PlantAudit
from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit, packed
from widefield.probes import pixels
from widefield.probes.compare import compare
from widefield.probes.comparison import Comparison
from widefield.probes.verdicts import name_share
from widefield.report import png


def task(name: str, learned: float | None) -> TaskAudit:
    return TaskAudit(
        task=name,
        verdict="not separable" if learned is None else name_share(learned),
        learned=learned,
        learned_low=learned,
        learned_high=learned,
        accuracy=0.5,
        low=0.4,
        high=0.6,
        knn=0.5,
        floor=0.3,
        floor_of="pixels",
        ceiling=0.9,
        classes=3,
        test_examples=100,
        right=packed(np.arange(100) % 2 == 0),
        stages={
            "s3@4": {
                "accuracy": 0.7,
                "low": 0.6,
                "high": 0.8,
                "untrained": 0.65,
                "untrained_low": 0.55,
                "untrained_high": 0.75,
            }
        },
        best_stage="s3@4",
        best_untrained_stage="s3@4",
    )


def pictures(n: int) -> tuple[str, ...]:
    images = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return tuple(png(image) for image in images)


def compared_alike() -> Comparison:
    """The comparison of pixels with themselves, without labels."""
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    return compare(pixels, pixels, images, baseline="other")


def audited(settings: dict[str, Any] | None = None, **learned: float | None) -> Audit:
    """An audit of tasks with these learned shares, and of nothing else."""
    return Audit(
        encoder="random",
        settings=settings or {},
        fitted_on="a",
        scored_on="b",
        examples=(10, 10),
        tasks={name: task(name, share) for name, share in learned.items()},
        plants={},
        explanations={},
        wide_probe="widefield probe run --features wide",
        compared={},
        similarity={},
        comparisons={},
        checkpoints={},
        features={},
        notes=(),
        seed=0,
        widefield="1.2.3",
        machine={},
        pictures=Pictures(firing={}, spectrum=(1.0,), neighbors=(), map=None),
        report=None,
    )


def whole(text: str = "plain") -> Audit:
    """An audit with every part, and `text` wherever a string goes."""
    tasks = {text: task(text, 0.5), "unclear": task("unclear", None)}
    row = ImageRow(name=text, pictures=pictures(4))
    grades = tuple(task(text, share) for share in (0.1, None, 0.5, 0.7, 0.9))
    return Audit(
        encoder=text,
        settings={"method": text, "views": text, "epochs": 3, "temperature": 0.1},
        fitted_on=text,
        scored_on=text,
        examples=(10, 5),
        tasks=tasks,
        plants={
            text: PlantAudit(
                name=text,
                grades=grades,
                neighbors_kept=(0.9, 0.8, 0.7, 0.6, 1 / 3),
                neighbors_by_chance=0.1,
            )
        },
        explanations={},
        wide_probe=f"widefield probe {text}",
        compared={"other": {text: task(text, 0.8)}},
        similarity={"other": 0.31},
        comparisons={"other": compared_alike()},
        checkpoints={1: tasks, 10: tasks},
        features={"effective_rank": 12.345678901234567, "alpha_req": None},
        notes=(text,),
        seed=3,
        widefield="1.2.3",
        machine={"cpu": text},
        pictures=Pictures(
            firing={"act1": 0.25, "act2": 2 / 3},
            spectrum=(1.0, 0.5, 0.125),
            neighbors=(row,),
            map=ImageMap(
                task=text,
                places=((0.0, 1.5), (2.25, -3.0), (1.0, 1.0), (4.0, 4.0)),
                names=(text,) * 4,
                groups=(0, 1, 2, 5),
                pictures=pictures(4),
            ),
        ),
        report=None,
    )
