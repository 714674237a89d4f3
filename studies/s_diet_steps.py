"""A step of S-DIET beside others: gradients of batch cross-entropy (table 2), memory (table 6)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.study import TINY, Arm, Finding, Measured, Scale, SeedRuns, Study, cpu_study
from studies.trained import Trained
from widefield.config.recipes import make_recipe
from widefield.core.form import InputSpec
from widefield.data import Dataset, Loader
from widefield.encoders import Encoder
from widefield.head import PerExampleHead, batch_cross_entropy, initial_rows
from widefield.methods import BuildContext, Method, SDietConfig
from widefield.views import build_views

MIB, CPU = 2**20, torch.device("cpu")
COSINES = {
    ("resnet18", 64): 0.9944,
    ("resnet18", 128): 0.9965,
    ("resnet18", 256): 0.9975,
    ("resnet18", 512): 0.9980,
    ("resnet50", 64): 0.9960,
    ("resnet50", 128): 0.9980,
    ("resnet50", 256): 0.9990,
    ("resnet50", 512): 0.9995,
}
"""Network and batch size -> the paper's cosine of the gradients of both losses."""


def published_settings() -> SDietConfig:
    """Return the settings of S-DIET's paper."""
    settings = make_recipe("s-diet-paper").method
    assert isinstance(settings, SDietConfig)
    return settings


def cosine(
    encoder: nn.Module, projector: nn.Module, view: Tensor, index: Tensor, rows: Tensor
) -> float:
    """Return the cosine of the encoder's gradients of full and batch cross-entropy.

    Args:
        view: [b, C, H, W], of the examples `index` [b].
        rows: of all n examples, [n, m].
    """
    settings = published_settings()
    z = F.normalize(projector(encoder(view)), dim=1)
    smoothing = settings.label_smoothing
    losses = (
        F.cross_entropy(z @ rows.T, index, label_smoothing=smoothing),
        batch_cross_entropy(z, rows[index], scale=settings.logit_scale, smoothing=smoothing),
    )
    first, second = (_gradient(loss, encoder) for loss in losses)
    return float(F.cosine_similarity(first, second, dim=0))


def _gradient(loss: Tensor, encoder: nn.Module) -> Tensor:
    """Return the gradient as one vector, float64; the graph stays for another loss."""
    gradients = torch.autograd.grad(loss, list(encoder.parameters()), retain_graph=True)
    return torch.cat([g.flatten().double() for g in gradients])


def _cosine_at_start(
    dataset: Dataset, name: str, size: int, seed: int, device: torch.device
) -> float:
    """Return `cosine` of one batch, with a new encoder, projector and rows."""
    mean, std = dataset.channel_mean_std()
    inputs = InputSpec(image_size=dataset.images.shape[1], mean=mean, std=std)
    settings = replace(make_recipe("s-diet-paper").encoder, name=name)
    encoder = settings.build(inputs, seed=seed).to(device).train()
    if name == "resnet50":  # a batch's activations would take tens of gigabytes
        encoder.backbone.set_grad_checkpointing()
    torch.manual_seed(seed)
    head = published_settings().projector
    projector, every = head.build(encoder.dim).to(device).train(), torch.arange(len(dataset))
    rows = initial_rows(every.to(device), head.dim, seed=seed, dtype=torch.float32)
    batch = next(iter(Loader(dataset, batch_size=size, device=device).epoch(seed)))
    (view,) = build_views("expert")(batch.x, 1, torch.Generator(device).manual_seed(seed))
    return cosine(encoder, projector, view, batch.index.to(device), rows)


def _cosine(trained: Trained) -> Measured:
    tiny = trained.scale.images is not None
    name, size = ("resnet-tiny", 24) if tiny else trained.arm.about["case"]
    found = _cosine_at_start(trained.train_set(), name, size, trained.seed, trained.device)
    return {"cosine": found, "published": COSINES[trained.arm.about["case"]]}


def _off(network: str) -> Callable[[SeedRuns], float]:
    """Return the value of a finding: .005 minus the largest distance to the paper's cosines."""
    arms = [f"{name}, batch {size}" for name, size in COSINES if name == network]
    return lambda runs: 0.005 - max(abs(runs[a]["cosine"] - runs[a]["published"]) for a in arms)


SAME = "the cpu scale has the paper's own networks and sizes"
T2 = Study(
    id="SD-T2",
    question="Has batch cross-entropy the encoder's gradient of full cross-entropy at the start?",
    published="cosines of ResNet-18 .9944 .9965 .9975 .9980 at batch 64 to 512, of ResNet-50 "
    ".9960 .9980 .9990 .9995",
    scales={"tiny": TINY, "cpu": Scale(images=None, epochs=1, seeds=(0, 1, 2, 3, 4), minutes=20)},
    missing={"gpu": SAME},
    arms={
        f"{name}, batch {size}": Arm(data="cifar100", settings=None, about={"case": (name, size)})
        for name, size in COSINES
    },
    measure=_cosine,
    findings=tuple(
        Finding(
            id=f"SD-T2 {short}",
            criterion="the cosine is within .005 of the paper's at all four batch sizes",
            value=_off(name),
        )
        for short, name in (("R18", "resnet18"), ("R50", "resnet50"))
    ),
)


@dataclass(frozen=True)
class Case:
    """A network and data of table 6."""

    encoder: str
    size: int
    examples: int
    stem: str
    short: int
    """Images of the smaller of two batches, from which batch 256 is extrapolated."""


CASES = {
    "CIFAR R18": Case("resnet18", 32, 50_000, "cifar", 8),
    "CIFAR R50": Case("resnet50", 32, 50_000, "cifar", 4),
    "ImageNet-100 R50": Case("resnet50", 224, 126_689, "native", 2),
    "TinyImageNet R50": Case("resnet50", 64, 100_000, "native", 4),
}
SMALL = replace(CASES["CIFAR R18"], encoder="resnet-tiny", examples=500, short=2)
"""What scale tiny measures."""
PAPERS_RECIPE = {"s-diet": "s-diet-paper", "diet": "s-diet-paper"}
METHODS = (*PAPERS_RECIPE, "simclr", "byol", "simsiam", "barlow-twins")
BATCH = 256


class Step:
    """A step of a method as published, at batch sizes that fit here.

    Args:
        method: name of a method.
        case: network and data.
    """

    def __init__(self, method: str, case: Case, device: torch.device = CPU) -> None:
        recipe = make_recipe(
            PAPERS_RECIPE.get(method, "solo-learn"),
            method=method,
            encoder=case.encoder,
            stem=case.stem,
        )
        self.size, self.adam, self.device = case.size, recipe.optimizer == "adamw", device
        inputs = InputSpec(image_size=case.size)
        self.encoder: Encoder = recipe.encoder.build(inputs, seed=0).to(device)
        self.method: Method = recipe.method.build(
            BuildContext(
                encoder=self.encoder,
                feature_dim=self.encoder.dim,
                examples=case.examples,
                labels={},
                steps=1000,
                batch_size=BATCH,
                weight_decay=recipe.weight_decay,
                seed=0,
                device=device,
                generator=torch.Generator(device),
            )
        ).to(device)

    @property
    def trained(self) -> list[nn.Parameter]:
        """Parameters of encoder and method that get gradients."""
        every = (*self.encoder.parameters(), *self.method.parameters())
        return [p for p in every if p.requires_grad]

    def loss(self, images: int) -> Tensor:
        """Return the loss of random views."""
        shape = (images, 3, self.size, self.size)
        views = [torch.rand(shape, device=self.device) for _ in range(self.method.view_count)]
        return self.method(self.encoder, views, torch.arange(images)).total

    def take(self, images: int) -> None:
        """Take a step of the recipe's optimizer, or of one with the same state."""
        optimizer = (
            torch.optim.AdamW(self.trained)
            if self.adam
            else torch.optim.SGD(self.trained, momentum=0.9)
        )
        self.loss(images).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        for module in self.method.modules():
            if isinstance(module, PerExampleHead) and module.optimizer is not None:
                module.optimizer.step()
        if self.method.moves_after_step:
            self.method.after_step()

    def state_bytes(self) -> int:
        """Return the bytes of weights, gradients and the optimizer's moments on the device."""
        every = [*self.encoder.parameters(), *self.method.parameters()]
        buffers = [*self.encoder.buffers(), *self.method.buffers()]
        moments = 2 if self.adam else 1
        fixed, moving = (sum(x.nbytes for x in xs) for xs in ((*every, *buffers), self.trained))
        return fixed + (1 + moments) * moving

    def saved_bytes(self, images: int) -> int:
        """Return the bytes that the loss saves for its backward pass, without weights."""
        saved = dict[int, int]()
        modules = (self.encoder, self.method)
        weights = {p.untyped_storage().data_ptr() for m in modules for p in m.parameters()}

        def pack(x: Tensor) -> Tensor:
            saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            loss = self.loss(images)
        del loss
        return sum(size for at, size in saved.items() if at not in weights)


def account(method: str, case: Case) -> float:
    """Return the bytes of a step of 256 images by its tensors, in MiB.

    What is saved for the backward pass grows linearly with the images, so two short batches give
    it.
    """
    short = case.short
    first, second = (Step(method, case).saved_bytes(images) for images in (short, 2 * short))
    saved = first + (BATCH - short) / short * (second - first)
    return round((Step(method, case).state_bytes() + saved) / MIB, 1)


def added_by_a_step(method: str, images: int) -> float:
    """Return the peak memory that building a method and taking a step add to the process, MiB."""
    before = _peak()
    Step(method, CASES["CIFAR R18"]).take(images)
    return _peak() - before


def peak_of_a_step(method: str, images: int, case: Case) -> float:
    """Return the peak memory of a step above that of the process after a step of two images, MiB.

    The first step imports what the method needs, and builds its optimizer.
    """
    step = Step(method, case)
    step.take(2)
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    step.take(images)
    return _peak() - before


def on_device(method: str, case: Case, device: torch.device) -> float:
    """Return the peak memory of a step of 256 images on a GPU, MiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    Step(method, case, device).take(BATCH)
    return round(torch.cuda.max_memory_allocated(device) / MIB)


def _peak() -> float:
    """Return the peak memory of this process, MiB; that of `resource` includes its parent's."""
    return _status("VmHWM")


def _resident() -> float:
    return _status("VmRSS")


def _status(name: str) -> float:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if name in x)
    return int(line.split()[1]) / 1024


def _in_a_process(call: Callable[..., float], *arguments: object) -> float:
    """Return the result of a call in a process of its own, whose memory ends with it."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def _memory(trained: Trained) -> Measured:
    """Memory of the method of an arm on every network, by its tensors and by its process."""
    method, tiny = trained.arm.about["method"], trained.scale.images is not None
    if tiny:
        return {"CIFAR R18, MiB": account(method, SMALL)}
    measured = {f"{name}, MiB": _in_a_process(account, method, c) for name, c in CASES.items()}
    if trained.device.type == "cuda":
        measured |= {
            f"{name}, GPU, MiB": on_device(method, case, trained.device)
            for name, case in CASES.items()
        }
    return measured | {"process, batch 32, MiB": round(_in_a_process(added_by_a_step, method, 32))}


def _saving(name: str, others: tuple[str, ...] = METHODS[1:]) -> Callable[[SeedRuns], float]:
    """Return the value of a finding: how much less S-DIET takes than the least other, percent."""

    def value(runs: SeedRuns) -> float:
        ours, *theirs = (runs[method][f"{name}, MiB"] for method in ("s-diet", *others))
        return float(100 * (1 - ours / min(theirs)))

    return value


T6 = Study(
    id="SD-T6",
    question="Does a step of S-DIET take less memory than those of five other methods?",
    published="MiB of S-DIET, DIET, SimCLR, SimSiam, Barlow Twins, BYOL: CIFAR R18 2312 2556 3896 "
    "3964 4026 4512; R50 7770 9720 16408 16562 17090 17296; ImageNet-100 R50 23634 31164 40322 "
    "45264 44698 (BYOL none); TinyImageNet R50 2976 6676 4352 4390 4532 4842",
    scales={
        "tiny": TINY,
        "cpu": Scale(images=None, epochs=1, seeds=(0, 1), minutes=10),
        "gpu": Scale(images=None, epochs=1, seeds=(0, 1), minutes=5),
    },
    arms={
        method: Arm(data="cifar10", settings=None, about={"method": method}) for method in METHODS
    },
    measure=_memory,
    findings=(
        *(
            Finding(
                id=f"SD-T6 {name}",
                criterion="by its tensors S-DIET takes at least 5 % less than the least other",
                value=_saving(name),
                at_least=5.0,
            )
            for name in CASES
        ),
        Finding(
            id="SD-T6 process",
            criterion="its process takes at least 20 % less than the least of the two-view methods",
            value=_saving("process, batch 32", METHODS[2:]),
            at_least=20.0,
        ),
    ),
    conclusion=(
        "What the tensors take is an account of weights, gradients, moments and what a loss saves "
        "for its backward pass, without spread; it was compared with no GPU. The one measurement, "
        "of the process at batch 32, includes what a method imports."
    ),
)


def _memory_of_steps(trained: Trained) -> Measured:
    """Memory of a step of the method of an arm in a process of its own, without imports."""
    method = trained.arm.about["method"]
    if trained.scale.images is not None:  # tiny: in this process
        return {f"batch {BATCHES[0]}, MiB": round(peak_of_a_step(method, 4, SMALL))}
    case = CASES["CIFAR R18"]
    return {
        f"batch {size}, MiB": round(_in_a_process(peak_of_a_step, method, size, case))
        for size in BATCHES
    }


BATCHES = (256, 1024)
MEMORY = cpu_study(
    id="memory",
    question="From which batch on does S-DIET save memory of the process, with ResNet-18?",
    tiny=replace(TINY, arms=1),
    cpu=Scale(images=None, epochs=1, minutes=60),
    arms=T6.arms,
    measure=_memory_of_steps,
    findings=tuple(
        Finding(
            id=f"memory {size}",
            criterion="a step of S-DIET adds at least 20 % less memory than the least of the "
            f"two-view methods, at batch {size}",
            value=_saving(f"batch {size}", METHODS[2:]),
            at_least=20.0,
        )
        for size in BATCHES
    ),
    conclusion=(
        "A step saves the activations of one view instead of two. What a method imports and builds "
        "is there before the step and does not count, with the rows of 50,000 examples of DIET and "
        "S-DIET. SD-T6 process counts both, at batch 32."
    ),
)

STUDIES = [T2, T6, MEMORY]
