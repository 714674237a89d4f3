"""Methods and view policies together: a step is taken, or refused with the reason.

What a method and a policy have to do with each other is how many views a step takes and what of
the run a policy asks for: a second view, a mask, gradients, a step of its own. So each method
meets one policy of each kind, and each policy meets a method of one view and one of two.
"""

import pytest
import torch

from small_run import EXAMPLES, batch, small_recipe, train_step
from widefield.data import open_dataset
from widefield.methods import METHODS
from widefield.train.build import check_view_policy
from widefield.train.state import TrainState
from widefield.views import VIEWS

PLANTED = open_dataset("photos+digits", max_examples=EXAMPLES)
KINDS = ("expert", "viewmaker", "adversarial", "noise:object")
ONE_VIEW, TWO_VIEWS = "row-contrast", "simclr"
PAIRS = sorted(
    {(method, views) for method in METHODS for views in KINDS}
    | {(method, views) for method in (ONE_VIEW, TWO_VIEWS) for views in VIEWS}
)


def refusal(state: TrainState, views: str) -> str | None:
    """Return why a run of this state does not take these views of its own; None if it does."""
    try:
        check_view_policy(state.views, state.method, PLANTED, views)
    except ValueError as error:
        return str(error)
    return None


def test_methods_are_of_one_view_or_two() -> None:
    counts = {name: train_step(name, "none").state.method.view_count for name in METHODS}
    assert (counts[ONE_VIEW], counts[TWO_VIEWS]) == (1, 2)
    assert set(counts.values()) == {1, 2}


def test_every_kind_of_policy_is_met() -> None:
    """A new flag on a policy, or a new combination of flags, asks for a new entry of `KINDS`."""
    kinds = {kind_of(name) for name in KINDS}
    met_by_two_methods = {name for name in VIEWS if kind_of(name) not in kinds}
    assert met_by_two_methods == {"random-mask", "mask-viewmaker"}


def kind_of(views: str) -> tuple[bool, ...]:
    """Return what the policy asks of a run."""
    policy = small_recipe(TWO_VIEWS, views).views.build()
    learns = any(p.requires_grad for p in policy.parameters())
    return policy.needs_mask, policy.complementary_pairs, policy.gradient_calls > 0, learns


@pytest.mark.parametrize(("method", "views"), PAIRS)
def test_it_takes_a_step_or_is_refused(method: str, views: str) -> None:
    step = train_step(method, views)
    reason = refusal(step.state, views)
    if reason is not None:
        assert (method, views) == (ONE_VIEW, "random-mask")
        assert all(word in reason for word in (f"views '{views}'", "choose"))
        assert "\n" not in reason
        return
    before = [p.detach().clone() for p in step.state.model.parameters()]
    values = step(batch(count=4))
    assert all(bool(torch.isfinite(value)) for value in values.values())
    after = step.state.model.parameters()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_half_a_pair_alone_is_refused(method: str) -> None:
    state = train_step(method, "random-mask").state
    assert (refusal(state, "random-mask") is not None) == (state.method.view_count == 1)


def misfit(data: str, method: str = ONE_VIEW, views: str = "expert") -> None:
    dataset = open_dataset(data, max_examples=EXAMPLES)
    state = train_step(method, views).state
    check_view_policy(state.views, state.method, dataset, views)


def test_labels_that_change_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="change at each read: plant them without ':fresh'"):
        misfit("photos+shapes:fresh", "supervised")
    misfit("photos+shapes:fresh")


@pytest.mark.parametrize("views", ["mask-viewmaker", "noise:object+flip"])
def test_a_mask_needs_something_planted(views: str) -> None:
    with pytest.raises(ValueError, match=r"none in 'photos:train': plant one, as in 'photos\+dig"):
        misfit("photos", views=views)
