"""The lower bound of torch, checked when torch is first used."""

MIN_TORCH = (2, 11)


def check_torch(version: str) -> None:
    """Check a version of torch."""
    if tuple(map(int, version.split(".")[:2])) < MIN_TORCH:
        bound = ".".join(map(str, MIN_TORCH))
        raise ImportError(
            f"widefield needs torch {bound} or later, and this is {version}: "
            f"pip install 'torch>={bound}'",
            name="widefield",
        )
