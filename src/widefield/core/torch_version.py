"""The lower bound of torch, checked when torch is first used."""

MIN_TORCH = (2, 11)


def check_torch(version: str) -> None:
    """Check a version of torch.

    Raises:
        ImportError: it is too old; the message has the command that helps.

    Example:
        >>> check_torch("2.14.1+cpu")
        >>> check_torch("2.4.0")
        Traceback (most recent call last):
        ImportError: widefield needs torch 2.11 or later, and this is 2.4.0: pip install ...
    """
    if tuple(map(int, version.split(".")[:2])) < MIN_TORCH:
        bound = ".".join(map(str, MIN_TORCH))
        raise ImportError(
            f"widefield needs torch {bound} or later, and this is {version}: "
            f"pip install 'torch>={bound}'",
            name="widefield",
        )
