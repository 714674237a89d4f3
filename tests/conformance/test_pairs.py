"""Every method with every view policy: it takes a step, or is refused with the reason."""

import pytest
import torch

from small_run import EXAMPLES, batch, stepper
from widefield.data import open_dataset
from widefield.methods import METHODS
from widefield.recipe import Recipe
from widefield.train.opponent import refuse_misfit
from widefield.views import VIEWS, build_views

PLANTED = open_dataset("photos+digits", limit=EXAMPLES)


def refusal(method: str, views: str) -> str | None:
    recipe = Recipe(method=method, views=views)
    try:
        refuse_misfit(recipe, build_views(views), METHODS[method], PLANTED)
    except ValueError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("method", METHODS)
def test_it_takes_a_step_or_is_refused(method: str, views: str) -> None:
    reason = refusal(method, views)
    if reason is not None:
        assert all(word in reason for word in (f"views '{views}'", method, "choose"))
        assert "\n" not in reason
        return
    run = stepper(method, views)
    before = [p.detach().clone() for p in run.training.objective.parameters()]
    values = run.step(batch(count=4))
    assert all(bool(torch.isfinite(value)) for value in values.values())
    after = run.training.objective.parameters()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_what_is_refused_is_half_a_pair_alone() -> None:
    refused = {(m, v) for m in METHODS for v in VIEWS if refusal(m, v) is not None}
    one_view = {method for method, kind in METHODS.items() if kind.view_count == 1}
    assert refused == {(method, "random-mask") for method in one_view}


def test_labels_that_change_cannot_be_told() -> None:
    fresh, recipe = open_dataset("photos+shapes:fresh", limit=EXAMPLES), Recipe(method="supervised")
    with pytest.raises(ValueError, match="change at each read: plant it without ':fresh'"):
        refuse_misfit(recipe, build_views("expert"), METHODS["supervised"], fresh)
    refuse_misfit(Recipe(), build_views("expert"), METHODS["s-diet"], fresh)


@pytest.mark.parametrize("views", ["mask-viewmaker", "noise:object+flip"])
def test_a_mask_needs_something_planted(views: str) -> None:
    plain, recipe = open_dataset("photos", limit=EXAMPLES), Recipe(views=views)
    with pytest.raises(ValueError, match=r"none in 'photos:train': plant one, as in 'photos\+dig"):
        refuse_misfit(recipe, build_views(views), METHODS["s-diet"], plain)
