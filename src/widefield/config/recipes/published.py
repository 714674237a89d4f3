"""What a paper or its authors' code says of each setting, to be put beside a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Published:
    """Values of one source for one method; what it does not name, it leaves unstated."""

    source: str
    """Paper and section, or files of the authors' code."""
    values: Mapping[str, Any]
    """Flat name of a setting -> its value in the source, the same as in the recipe."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Setting, or part that no setting chooses -> how the source has it and the recipe has not."""
