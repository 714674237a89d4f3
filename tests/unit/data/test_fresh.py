"""What is planted fresh is drawn anew at each read; everything else about it is as before."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from planting import plant
from widefield.data import Loader, open_dataset
from widefield.data.planted import PLANTS, Canvas, ImageFeature

CPU = torch.device("cpu")
NAMES = tuple(name for name, kind in PLANTS.items() if issubclass(kind, ImageFeature))
COUNT = 40


def loader(spec, *, max_examples=COUNT, batch_size=20, **settings):
    dataset = open_dataset(
        spec, max_examples=max_examples, seed=3, memory_budget=settings.pop("budget", None)
    )
    return dataset, Loader(dataset, batch_size=batch_size, device=CPU, masks=True, **settings)


def epoch(batches, number, start=0):
    """Pixels uint8 [n, H, W, C], labels and masks of an epoch, by example."""
    parts = list(batches.epoch(number, start))
    index = torch.cat([batch.index for batch in parts])
    x = (torch.cat([batch.x for batch in parts]) * 255).round().to(torch.uint8)
    labels = {task: torch.cat([b.labels[task] for b in parts]).numpy() for task in parts[0].labels}
    mask = torch.cat([batch.mask for batch in parts])[:, 0].numpy()
    return index.numpy(), x.permute(0, 2, 3, 1).numpy(), labels, mask


@pytest.mark.parametrize("name", NAMES)
def test_every_epoch_draws_class_place_and_color_anew(name):
    plain = open_dataset("photos", max_examples=COUNT).images
    dataset, batches = loader(f"photos+{name}:fresh")
    labels = []
    for number in range(3):
        index, x, found, mask = epoch(batches, number)
        assert (x[~mask] == plain[index][~mask]).all()
        assert (x[mask] != plain[index][mask]).any(axis=-1).mean() > 0.8
        assert (found["class"] == dataset.labels["class"][index]).all()
        by_example = np.empty(COUNT, dtype=np.int64)
        by_example[index] = found[name]
        labels.append(by_example)
    assert len(np.unique([*labels, dataset.labels[name]], axis=0)) == 4


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_what_the_deterministic_form_draws(name):
    """The same stamps, places and alpha, only at other random numbers."""
    images = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    dataset = open_dataset({"x": images})
    assert dataset.plain is None
    fresh = plant(images, PLANTS[name](), seed=3, index=np.arange(30) + 5 * 2**32)
    canvas = Canvas(shape=(32, 32, 3), seed=3, held_out=False)
    overlay = PLANTS[name](fresh=True).draw(canvas)
    drawn = images.copy()
    mask = overlay.apply(drawn, np.arange(30), read=5)
    assert (drawn == fresh.images).all()
    assert (mask == fresh.mask).all()
    assert (mask == overlay.mask(np.arange(30), (32, 32), read=5)).all()
    assert (overlay.labels(np.arange(30), read=5) == fresh.labels).all()


def test_an_epoch_is_the_same_wherever_it_is_entered():
    _, batches = loader("photos+shapes:fresh")
    for whole, part in zip(epoch(batches, 2), epoch(batches, 2, start=1), strict=True):
        if isinstance(whole, dict):
            assert all((whole[task][20:] == part[task]).all() for task in whole)
        else:
            assert (whole[20:] == part).all()


def test_classes_are_drawn_evenly():
    _, batches = loader("photos+shapes:fresh", max_examples=400, batch_size=400)
    labels = np.concatenate([epoch(batches, number)[2]["shapes"] for number in range(5)])
    assert chisquare(np.bincount(labels, minlength=3)).pvalue > 1e-3


def test_images_and_labels_of_the_dataset_are_those_of_read_0():
    dataset, _ = loader("photos+shapes:fresh+digits")
    fixed = open_dataset("photos+shapes+digits", max_examples=COUNT, seed=3)
    assert (dataset.images == fixed.images).all()
    assert {task: ids.tolist() for task, ids in dataset.labels.items()} == {
        task: ids.tolist() for task, ids in fixed.labels.items()
    }


def test_what_is_not_fresh_stays(tmp_path):
    dataset, batches = loader("photos+shapes:fresh+digits")
    for number in range(2):
        index, _, labels, _ = epoch(batches, number)
        assert (labels["digits"] == dataset.labels["digits"][index]).all()
        assert (labels["shapes"] != dataset.labels["shapes"][index]).any()


def test_pixels_on_disk_are_planted_as_those_in_memory():
    in_memory, on_disk = (loader("photos+letters:fresh", budget=b)[1] for b in (None, 0))
    for one, two in zip(epoch(in_memory, 1)[:2], epoch(on_disk, 1)[:2], strict=True):
        assert (one == two).all()


def test_a_subset_keeps_what_is_drawn_on_each():
    dataset = open_dataset("photos+letters:fresh+digits", max_examples=COUNT, seed=3)
    rows = np.array([31, 4, 4, 17, 8, 9])
    part = dataset.subset(rows)
    assert (part.images == dataset.images[rows]).all()
    assert (part.masks(np.arange(6), 7) == dataset.masks(rows, 7)).all()
    again = part.subset(np.array([5, 0]))
    assert (again.masks(np.arange(2), 2) == dataset.masks(rows[[5, 0]], 2)).all()
    (batch,) = Loader(part, batch_size=6, device=CPU, masks=True).epoch(1)
    index = batch.index.numpy()
    whole = {overlay.name: overlay.labels(rows[index], 2) for overlay in dataset.planted}
    assert {name: batch.labels[name].tolist() for name in whole} == {
        name: ids.tolist() for name, ids in whole.items()
    }
    assert (batch.mask.permute(0, 2, 3, 1).numpy() == dataset.masks(rows[index], 2)).all()


def test_the_first_read_stays():
    dataset = open_dataset("photos+shapes:fresh", max_examples=COUNT, seed=3)
    still = dataset.first_read()
    assert still.plain is None
    for epoch in range(2):
        for batch in Loader(still, batch_size=20, device=CPU, masks=True).epoch(epoch):
            index = batch.index.numpy()
            x = (batch.x.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
            assert (x == dataset.images[index]).all()
            assert (batch.labels["shapes"].numpy() == dataset.labels["shapes"][index]).all()
            assert (batch.mask.permute(0, 2, 3, 1).numpy() == dataset.masks(index)).all()
