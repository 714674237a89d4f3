"""What the features of a sparse-coding learner are worth (Wen & Li 2021, sections 3 and E).

Downstream tasks (Definition 3.1): y = <w*, z> by least squares, sign <w*, z> by logistic
regression, on frozen features. Optimal learner (Definition E.10): with M_j* the neurons that single
out atom j, theta_i = kappa sqrt(tau)/|M_j*| sign<w_i, M_j> M_j for i in M_j*, else 0, and

    f_theta,i(x) =   (<theta_i, x> - b_i) 1(<w_i, x> >= b_i)
                   - (-<theta_i, x> - b_i) 1(-<w_i, x> >= b_i)

Lemma E.11 bounds the loss of f_theta as the anchor's net, f as that of the others.

Shapes: A arms, n examples, m neurons, d atoms, d1 ambient dimensions, k labels w*.
"""

import torch
from torch import Generator, Tensor
from torch.nn import functional

from widefield_labs.lab import Arrays
from widefield_labs.sparse_learner import (
    Arms,
    SparseCoding,
    contrastive_loss,
    draw_views,
    parts,
    respond,
    similarities,
)

SINGLETON = 0.7
"""|<w, M_j>| / |w| from which a neuron is one atom's: nearly half of its |w|^2."""
RIDGE = 1e-3  # per example, of features of unit variance: keeps dead neurons solvable
LOGISTIC_STEPS = 100
KAPPAS = (1.0, 3.0, 10.0, 30.0, 100.0)


def split(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features to fit and to test, in units of their deviation, and their labels.

    Two thirds of the examples fit.
    """
    fit = 2 * len(y) // 3
    scaled = (f / f[:, :fit].std((1, 2), keepdim=True).clamp_min(1e-30)).double()
    return scaled[:, :fit], scaled[:, fit:], y[:fit].double(), y[fit:].double()


def regression(f: Tensor, y: Tensor) -> Tensor:
    """Return the test R^2 [A] of least squares of y [n, k] on f [A, n, m], a mean over k."""
    fit, test, fit_y, test_y = split(f, y)
    ridge = RIDGE * len(fit_y) * torch.eye(f.shape[-1], dtype=torch.float64)
    weights = torch.linalg.solve(fit.mT @ fit + ridge, fit.mT @ fit_y)
    return 1 - (test @ weights - test_y).square().mean((1, 2)) / test_y.var()


def classification(f: Tensor, y: Tensor) -> Tensor:
    """Return the test accuracy [A] of logistic regression of sign y on f, where y is not 0.

    Each step minimizes a quadratic that lies above the loss: the logistic function's slope is at
    most 1/4, so that F^T F/4 is at least the Hessian.
    """
    fit, test, fit_y, test_y = split(f, y)
    ridge = RIDGE * len(fit_y) * torch.eye(f.shape[-1], dtype=torch.float64)
    factor = torch.linalg.cholesky(fit.mT @ fit / 4 + ridge)
    weights = torch.zeros(len(f), f.shape[-1], y.shape[1], dtype=torch.float64)
    positive, exists = (fit_y > 0).double(), (fit_y != 0).double()
    for _ in range(LOGISTIC_STEPS):
        missing = (positive - torch.sigmoid(fit @ weights)) * exists
        weights = weights + torch.cholesky_solve(fit.mT @ missing - ridge @ weights, factor)
    right = ((test @ weights).sign() == test_y.sign()) & (test_y != 0)
    return right.sum((1, 2)) / (test_y != 0).sum()


def downstream(
    w: Tensor, b: Tensor, data: SparseCoding, count: int, generator: Generator
) -> Arrays:
    """Measure both tasks, and how close f(x) is to f of the noise and of the signal, [A] each.

    `linear_r2` and `linear_sign` are the same tasks on <M_j, x>, the best that is linear in x.
    """
    z, xi = data.sample(count, generator)
    signal = z @ data.atoms.T
    f, f_noise, f_signal = (respond(x @ w.mT, b) for x in (signal + xi, xi, signal))
    y = z @ torch.randn(data.atoms.shape[1], 16, generator=generator).sign()
    coordinates = (signal + xi) @ data.atoms
    has_signal = z.any(1)  # where z = 0 there is no signal to be close to
    arrays = {
        "r2": regression(f, y),
        "linear_r2": regression(coordinates, y),
        "sign": classification(f, y),
        "linear_sign": classification(coordinates, y),
    }
    for name, other in (("cos_noise", f_noise), ("cos_signal", f_signal)):
        cosine = functional.cosine_similarity(f, other, dim=-1)
        arrays[name] = cosine[:, has_signal].mean(1)
    return {name: values.numpy() for name, values in arrays.items()}


def weights(w: Tensor, data: SparseCoding) -> Arrays:
    """Measure what Theorem 3.4 says of the weights; `best_of` is [A, m], `per_atom` [A, d]."""
    sparse, dense = parts(w, data.atoms)
    along = (w @ data.atoms).abs()
    share = along / (sparse**2 + dense**2).sqrt().unsqueeze(-1)
    return {
        "best_of": share.amax(-1).numpy(),
        "best": share.amax(-1).mean(1).numpy(),
        "covered": (share.amax(1) >= SINGLETON).float().mean(1).numpy(),
        "per_atom": (share >= SINGLETON).sum(1).numpy(),
        "dense": (dense / along.amax(-1)).mean(1).numpy(),
    }


def optimal_responses(w: Tensor, b: Tensor, x: Tensor, atoms: Tensor, kappa: Tensor) -> Tensor:
    """Return f_theta(x) [A, n, m] of the optimal learner (Definition E.10), kappa sqrt(tau) [A].

    A neuron belongs to the atom that it singles out, or to none.
    """
    along = w @ atoms
    share, atom = (along.abs() / w.square().sum(-1, keepdim=True).sqrt()).max(-1)
    single = (share >= SINGLETON).to(w.dtype)
    owned = functional.one_hot(atom, atoms.shape[1]).to(w.dtype) * single.unsqueeze(-1)  # [A, m, d]
    sharers = (owned @ owned.sum(1).unsqueeze(-1)).squeeze(-1).clamp_min(1)
    theta = (owned * along.sign()) @ atoms.T * (kappa.view(-1, 1) / sharers).unsqueeze(-1)
    reads, y, bias = x @ theta.mT, x @ w.mT, b.unsqueeze(-2)
    return (reads - bias) * (y >= bias) - (-reads - bias) * (-y >= bias)


def losses(
    w: Tensor, b: Tensor, data: SparseCoding, arms: Arms, batch: int, generator: Generator
) -> Arrays:
    """Measure the loss of the net and of the optimal learner, [A], as shares of what z tells.

    0 is the loss at f = 0, tau log(1 + N). 1 is that of a net which reads z exactly, at infinite
    scale: negatives with the anchor's z on the anchor's atoms, and all where z = 0, stay confused.
    """
    z, views = draw_views(data, arms, batch, generator)
    tau, at_zero = arms.tau, arms.tau * torch.tensor(1.0 + batch).log()
    anchor_z, negative_z = z[:batch], z[batch:]
    alike = anchor_z @ negative_z.T == anchor_z.square().sum(1, keepdim=True)
    of_z = tau * (1 + alike.sum(1)).log().mean()
    f, partner_f, negative_f = (respond(x @ w.mT, b) for x in views)
    reached = contrastive_loss(similarities(f, partner_f, negative_f), arms.column("tau"))
    best = at_zero
    for kappa in KAPPAS:
        f_theta = optimal_responses(w, b, views[0], data.atoms, kappa * tau.sqrt())
        similarity = similarities(f_theta, partner_f, negative_f)
        best = torch.minimum(best, contrastive_loss(similarity, arms.column("tau")))
    return {
        "loss": reached.numpy(),
        "loss_of_z": of_z.numpy(),
        "loss_share": ((at_zero - reached) / (at_zero - of_z)).numpy(),
        "optimal_share": ((at_zero - best) / (at_zero - of_z)).numpy(),
    }
