"""Names of encoders. Nothing here needs torch, so that a wrong name is refused at once."""

from pathlib import Path

from widefield.core.files import BUILTIN_ENCODERS

MODULE_PREFIX = "module:"
"""Prefix of the names of modules that were given in Python."""


def is_custom(name: str) -> bool:
    """Return whether a name is that of a network of one's own."""
    file, colon, function = name.rpartition(":")
    return name.startswith(MODULE_PREFIX) or (
        bool(colon) and file.endswith(".py") and function.isidentifier()
    )


def split_custom(name: str) -> tuple[str, str | None]:
    """Return a path and the function of a network in `PATH@FILE.py:FUNCTION`; None without one."""
    parts = name.split("@")
    splits = [("@".join(parts[:k]), "@".join(parts[k:])) for k in range(len(parts))]
    # A path may have an @ too: the file that is there counts, else the last @.
    path, network = next((s for s in splits if _is_custom_file(s[1])), splits[-1])
    is_named = bool(path) and is_custom(network) and not Path(name).exists()
    return (path, network) if is_named else (name, None)


def _is_custom_file(name: str) -> bool:
    return is_custom(name) and Path(name.rpartition(":")[0]).expanduser().is_file()


def check_encoder_name(name: str) -> None:
    """Check that `name` may name an encoder: a known form, or a path that exists."""
    is_known = name in BUILTIN_ENCODERS or name.startswith(("timm:", "torchvision:"))
    path = Path(name).expanduser()
    if is_known or is_custom(name.rpartition("@")[2]) or (name and path.exists()):
        return
    if not Path(str(path).rpartition("@")[0]).is_file():  # FILE@ARCHITECTURE
        raise ValueError(
            f"no encoder {name!r}: give a run's folder, a file of weights, timm:NAME, "
            "torchvision:NAME, FILE.py:FUNCTION, random or pixels"
        )
