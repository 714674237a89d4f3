"""Every view policy: docs/views.md."""

from pages.format import table
from widefield.views import VIEWS, Augmentation, Policy


def views() -> str:
    """Return each policy's summary, settings and requirements."""
    rows = []
    for name, policy in VIEWS.items():
        built = policy.build(policy.settings(), 3)
        rows.append([f"`{name}`", policy.summary, _settings(policy), _needs(built)])
    return table(["views", "augmentation", "settings", "requires"], rows)


def _settings(policy: Policy) -> str:
    values = policy.settings().flat()
    return ", ".join(
        f"`{name}` {value:.3g}" if isinstance(value, float) else f"`{name}` {value}"
        for name, value in values.items()
    )


def _needs(views: Augmentation) -> str:
    needs = {
        "a planted object": views.needs_mask,
        "a method of two views": views.complementary_pairs,
        "the gradient of the loss": bool(views.gradient_calls) or bool(list(views.parameters())),
    }
    return ", ".join(name for name, is_needed in needs.items() if is_needed)
