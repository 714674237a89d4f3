"""What a user's type checker accepts and refuses; `make lint` checks it, nothing runs it.

An error that is expected and not found is an error: mypy warns of an ignored line without one.
"""

import torch

import widefield
from widefield.losses import nt_xent
from widefield.methods import PairLoss, SimCLRConfig
from widefield.views import build_views


def accepted() -> tuple[object, ...]:
    loss: torch.Tensor = nt_xent(torch.eye(4), torch.eye(4), temperature=0.1)
    head = widefield.PerExampleHead(examples=10, dim=4)
    method = PairLoss(projector=torch.nn.Identity(), loss=widefield.losses.spectral_in_ball)
    policy = build_views("expert")
    simclr: torch.nn.Module = widefield.methods.SimCLR(128, temperature=0.2)
    recipe = widefield.make_recipe(method=SimCLRConfig(temperature=0.2), epochs=3)
    done = widefield.pretrain("photos", out="run", epochs=3, temperature=0.1, recipe=recipe)
    health: str = done.health.verdict
    return loss, head, method, policy, simclr, health


def refused() -> None:
    widefield.pretrain("photos", out="run", epoch=3)  # type: ignore[call-arg]
    widefield.pretrain("photos", out="run", epochs="3")  # type: ignore[arg-type]
    widefield.plan("photos", precision="bf61")  # type: ignore[arg-type]
