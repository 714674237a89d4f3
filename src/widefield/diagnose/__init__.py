"""Features -> numbers that say what an encoder does with its dimensions; nothing is trained."""

from widefield.diagnose.health import Health as Health
from widefield.diagnose.health import health as health
from widefield.diagnose.spectrum import alpha_req as alpha_req
from widefield.diagnose.spectrum import effective_rank as effective_rank
from widefield.diagnose.spectrum import feature_std as feature_std
from widefield.diagnose.spectrum import large_singular_values as large_singular_values
from widefield.diagnose.spectrum import participation_ratio as participation_ratio
from widefield.diagnose.spectrum import rankme as rankme
from widefield.diagnose.spectrum import singular_values as singular_values
