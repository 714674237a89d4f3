from functools import cache

import pytest

from widefield_labs import LABS


@pytest.fixture(scope="session")
def tiny():
    """Runs a lab at scale tiny, each seed once."""
    return cache(lambda name, seed: LABS[name].run(scale="tiny", seed=seed))
