"""The same as `widefield.core.gather`."""

from widefield.core.gather import gather as gather
from widefield.core.gather import rank_and_world as rank_and_world
