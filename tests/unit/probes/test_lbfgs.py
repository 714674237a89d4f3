import torch
from scipy import optimize
from torch import Tensor
from torch.nn import functional

from widefield.probes.design import DenseDesign
from widefield.probes.lbfgs import Problems, minimize


def problems(n: int = 60, d: int = 5) -> tuple[Tensor, Problems]:
    """Three problems of 3, 3 and 2 classes; in the second, the first 20 examples do not count."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator) * torch.logspace(1, -1, d)
    target = torch.randint(0, 2, (3, n), generator=generator)
    target[:2] += torch.randint(0, 2, (2, n), generator=generator)
    share = torch.ones(3, n)
    share[1, :20] = 0
    return x, Problems(
        target=target,
        share=share / share.sum(1, keepdim=True),
        l2=torch.tensor([1e-3, 1e-1, 1e-2])[:, None].repeat(1, d),
        classes=torch.tensor([3, 3, 2]),
    )


def reference(x: Tensor, p: Problems, j: int, weight: Tensor) -> Tensor:
    logits = x @ weight[: p.classes[j]].T
    losses = functional.cross_entropy(logits, p.target[j], reduction="none")
    return (p.share[j] * losses).sum() + (p.l2[j] * weight.square()).sum() / 2


def test_loss_and_gradient_are_autograds() -> None:
    x, p = problems()
    weight = torch.randn(3, 3, 5, generator=torch.Generator().manual_seed(1)) / 3
    weight[2, 2] = 0
    loss, probability = p.loss(p.logits(DenseDesign(x), weight), weight)
    gradient = p.gradient(DenseDesign(x), weight, probability)
    for j in range(3):
        leaf = weight[j].clone().requires_grad_()
        expected = reference(x, p, j, leaf)
        expected.backward()
        torch.testing.assert_close(loss[j].float(), expected.detach())
        torch.testing.assert_close(gradient[j], leaf.grad)


def test_the_diagonal_is_the_hessians_at_the_start() -> None:
    x, p = problems(n=4000)
    start = torch.zeros(3, 3, 5)
    _, probability = p.loss(p.logits(DenseDesign(x), start), start)
    got = p.diagonal(x.square().mean(0), probability)
    hessian = torch.autograd.functional.hessian(lambda w: reference(x, p, 0, w), start[0])
    across = hessian.view(15, 15).diagonal().view(3, 5)
    # p (1 - p) is 2/9 on the diagonal; between classes, where softmax can move, it acts as 1/3.
    torch.testing.assert_close(got[0, 0], (across[0] - 1e-3) * 1.5 + 1e-3, rtol=1e-3, atol=0)


def test_every_problem_reaches_the_minimum_that_scipy_finds() -> None:
    x, p = problems()
    solution = minimize(DenseDesign(x), p, torch.zeros(3, 3, 5), tolerance=1e-5)
    for j in range(3):

        def loss(flat: "object", j: int = j) -> tuple[float, "object"]:
            leaf = torch.tensor(flat).view(3, 5).requires_grad_()
            double = Problems(p.target, p.share.double(), p.l2.double(), p.classes)
            value = reference(x.double(), double, j, leaf)
            value.backward()
            return value.item(), leaf.grad.flatten().numpy()

        found = optimize.minimize(loss, torch.zeros(15).double().numpy(), jac=True, tol=1e-12)
        expected = torch.tensor(found.x).view(3, 5).float()
        torch.testing.assert_close(solution[j], expected, rtol=1e-3, atol=1e-3)


def test_a_solved_problem_is_returned_as_it_came() -> None:
    x, p = problems()
    solution = minimize(DenseDesign(x), p, torch.zeros(3, 3, 5), tolerance=1e-4)
    again = minimize(DenseDesign(x), p, solution, tolerance=2e-4)
    assert torch.equal(again, solution)


def test_a_tolerance_below_rounding_still_ends() -> None:
    x, p = problems()
    solution = minimize(DenseDesign(x), p, torch.zeros(3, 3, 5), tolerance=0.0)
    _, probability = p.loss(p.logits(DenseDesign(x), solution), solution)
    assert p.gradient(DenseDesign(x), solution, probability).norm() < 1e-4
