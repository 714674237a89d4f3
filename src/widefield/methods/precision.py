"""The same as `widefield.core.precision`."""

from widefield.core.precision import at_least_float32 as at_least_float32
from widefield.core.precision import full_precision as full_precision
