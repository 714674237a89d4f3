"""What a loop of one's own may pass by mistake: one line with the remedy, and no number.

Wrong calls are made from the annotations of every loss, and from the registries of views and
methods, so that a new one is tested without adding a line here. The controls show the number that
the same call gave without the check.
"""

import ast
import inspect
import math
import textwrap
import timeit
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from small_run import small_facts, small_recipe
from widefield import encoders, losses, methods, views
from widefield.core.batch import Shape, check_examples, check_index, check_tensors
from widefield.core.validation import limits
from widefield.encoders import Encoder, build_encoder
from widefield.head import (
    DiskStorage,
    LazyAdamW,
    LazySGD,
    MemoryStorage,
    PerExampleHead,
    StepHistory,
)
from widefield.head.lazy_optimizer import LazyOptimizer
from widefield.methods import METHODS, Method, Projector, SimCLR
from widefield.train.build import build
from widefield.views import VIEWS, AugmentContext, build_views

SIZES = {"b": 4, "m": 3, "n": 6, "K": 5, "k": 2}
every_loss = pytest.mark.parametrize("name", losses.__all__)
every_view = pytest.mark.parametrize("name", VIEWS)
every_method = pytest.mark.parametrize("name", METHODS)


def refused(call: Callable[[], object], what: str) -> None:
    """Assert that a call raises `ValueError` of one short line."""
    try:
        call()
    except ValueError as error:
        line = str(error)
        assert "\n" not in line, what
        assert 10 < len(line) < 400, what
    else:
        raise AssertionError(f"{what} was accepted")


def hints(function: Any) -> dict[str, Any]:
    found = inspect.get_annotations(function)
    return {name: found[name] for name in found if name != "return"}


def shape_of(hint: Any) -> Shape | None:
    return next(
        (part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Shape)), None
    )


def right(hint: Any) -> Any:
    """Return a valid argument for an annotation of a loss."""
    shape = shape_of(hint)
    if shape is None:
        choices = get_args(hint) or (hint,)
        if choices[0] is int:
            return 2
        return choices[0] if isinstance(choices[0], str) else 0.5
    sizes = [SIZES[letter] for letter in shape.sizes.split()]
    if shape.kind == "bool":
        return torch.ones(sizes, dtype=torch.bool)
    if shape.kind == "int64":
        return torch.arange(sizes[0])
    return torch.rand(sizes, generator=torch.Generator().manual_seed(len(str(hint))))


def right_call(name: str) -> dict[str, Any]:
    found = hints(getattr(losses, name)).items()
    return {n: right(hint) for n, hint in found if hint is not bool}


def wrong_tensors(x: Tensor, shape: Shape, others: list[str]) -> Iterator[tuple[str, Any]]:
    yield "a list", x.tolist()
    yield "an array", x.numpy()
    yield "None in a list", [None]
    yield "one axis more", x[None]
    yield "one number", x.sum()
    yield "another type", x.long() if shape.kind != "int64" else x.double()
    yield "complex numbers", x.to(torch.complex64)
    if shape.min_examples:
        yield "an empty batch", x[:0]
    if shape.min_examples > 1:
        yield "one example", x[:1]
    letters = shape.sizes.split()
    if len(letters) == 2:
        yield "no columns", x[:, :0]
    if letters[0] == "b" and any("b" in other for other in others):
        yield "more examples than the others", torch.cat([x, x])
    if letters[-1] == "m" and any("m" in other for other in others):
        yield "another width than the others", torch.cat([x, x], 1)
    if letters[-1] == "m" and any(other.endswith("m") for other in others):
        yield "another precision than the others", x.double()
        yield "another device than the others", x.to("meta")
    if shape.below:
        yield "an index of no row", x + SIZES[shape.below]
        yield "a negative index", x - 1
        yield "the index that torch ignores", torch.full_like(x, -100)


def wrong_numbers(hint: Any) -> Iterator[tuple[str, Any]]:
    bounds = limits(hint)
    yield from (
        (repr(x), x) for x in (math.nan, math.inf, -math.inf, -1.0, -0.1, "0.1", None, True)
    )
    yield "a tuple", (0.1,)
    if bounds.gt is not None:
        yield "its limit", bounds.gt


@every_loss
def test_wrong_arguments_of_a_loss_are_refused(name: str) -> None:
    loss, given = getattr(losses, name), right_call(name)
    assert torch.isfinite(loss(**given)).all()
    count = 0
    for argument, hint in hints(loss).items():
        shape = shape_of(hint)
        if shape is not None:
            others = {n: shape_of(h) for n, h in hints(loss).items() if n != argument}
            wrong = wrong_tensors(given[argument], shape, [s.sizes for s in others.values() if s])
        else:
            wrong = wrong_numbers(hint) if isinstance(given.get(argument), float) else iter(())
        for what, value in wrong:
            refused(lambda v=value, n=argument: loss(**{**given, n: v}), f"{argument}: {what}")
            count += 1
    assert count >= 9


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("nt_xent", {"temperature": -1.0}),
        ("dcl", {"temperature": -0.1}),
        ("decoupled_contrast", {"scale": -10.0}),
        ("vicreg", {"variance_weight": -25.0}),
        ("barlow_twins", {"off_diagonal_weight": -1.0}),
        ("index_cross_entropy", {"target": torch.tensor([0, 1, -100, -100])}),
        ("prediction_error", {"p": torch.ones(1, 3)}),
        ("negative_cosine", {"z": torch.ones(1, 3)}),
    ],
)
def test_control_without_the_check_it_is_a_number(name: str, changed: dict[str, Any]) -> None:
    loss, given = getattr(losses, name), {**right_call(name), **changed}
    assert torch.isfinite(loss.__wrapped__(**given))
    refused(lambda: loss(**given), name)


def test_half_precision_beside_float32_and_a_trained_temperature_are_no_mistakes() -> None:
    z, temperature = torch.rand(4, 3), torch.tensor(0.5, requires_grad=True)
    losses.nt_xent(z, z.bfloat16(), temperature=temperature).backward()  # type: ignore[arg-type]
    assert temperature.grad is not None
    batched = torch.vmap(losses.one_hot_error, (0, None, 0))
    assert batched(z[:, None], torch.rand(6, 3), torch.arange(4)[:, None]).shape == (4,)


WRONG_INDEX: dict[str, Any] = {
    "a list": [0, 1, 2, 3],
    "an array": np.arange(4),
    "floats": torch.arange(4.0),
    "bools": torch.ones(4, dtype=torch.bool),
    "fewer": torch.arange(3),
    "two axes": torch.arange(4)[None],
    "negative": torch.arange(4) - 1,
    "no number": None,
}
WRONG_FEATURES: dict[str, Any] = {
    "another width": torch.rand(4, 5),
    "an empty batch": torch.rand(0, 3),
    "whole numbers": torch.ones(4, 3, dtype=torch.int64),
    "one axis": torch.rand(4),
    "a list": [[0.1, 0.2, 0.3]] * 4,
    "an array": np.ones((4, 3), np.float32),
}


@pytest.mark.parametrize("what", [*WRONG_INDEX, "out of range", "twice"])
def test_a_wrong_index_of_a_head_is_refused(what: str) -> None:
    others = {"out of range": torch.arange(4) + 7, "twice": torch.tensor([0, 1, 1, 2])}
    index, head = (WRONG_INDEX | others)[what], PerExampleHead(10, 3)
    refused(lambda: head(torch.rand(4, 3), index), what)
    if what != "fewer":
        refused(lambda: head.rows(index), what)
    head(torch.rand(4, 3), torch.arange(4)).backward()  # which the refused call did not change


@pytest.mark.parametrize("what", WRONG_FEATURES)
def test_wrong_features_of_a_head_are_refused(what: str) -> None:
    head, z, index = PerExampleHead(10, 3), torch.rand(4, 3), torch.arange(4)
    refused(lambda: head(WRONG_FEATURES[what], index), what)
    refused(lambda: head(z, index, WRONG_FEATURES[what]), what)


@pytest.mark.parametrize("size", [0, -1, 2.0, math.nan, "3", True, None], ids=repr)
def test_a_head_of_no_examples_is_refused(size: Any, tmp_path: Any) -> None:
    for call in (
        lambda: PerExampleHead(size, 3),
        lambda: PerExampleHead(3, size),
        lambda: MemoryStorage(size, 3, seed=0),
        lambda: MemoryStorage(3, dim=size, seed=0),
        lambda: DiskStorage(tmp_path / "rows", size, 3, seed=0),
        lambda: methods.Diet(3, examples=size),
        lambda: methods.SDiet(3, examples=size),
    ):
        refused(call, repr(size))
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize("kind", [LazyAdamW, LazySGD])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("lr", x) for x in (math.nan, math.inf, -0.1)],
        *[("weight_decay", x) for x in (math.nan, -0.1, 1e3)],
        *[("gap", x) for x in (0, -1, 1.5, math.nan)],
        *[("eps", x) for x in (math.nan, -1e-8, math.inf)],
        *[("momentum", x) for x in (math.nan, -0.1, 1.0, 2.0)],
    ],
)
def test_wrong_rates_of_the_rows_are_refused(
    kind: type[LazyOptimizer], setting: str, value: float
) -> None:
    """As an argument, and where a scheduler sets it before a step, which leaves the rows."""
    head, given = PerExampleHead(10, 3), {"lr": 0.01, setting: value}
    if setting in inspect.signature(kind).parameters:
        refused(lambda: kind(head, **given), f"{setting} {value}")
    if setting not in ("lr", "weight_decay"):
        return
    head = PerExampleHead(10, 3)
    optimizer, index = kind(head, lr=0.01), torch.arange(4)
    head(torch.rand(4, 3), index).backward()
    before = head.rows(index)
    optimizer.param_groups[0][setting] = value
    if setting == "weight_decay" and value > 1:
        optimizer.param_groups[0]["lr"] = 1.0
    refused(optimizer.step, f"{setting} {value}")
    assert torch.equal(head.rows(index), before)
    optimizer.param_groups[0].update(lr=0.01, weight_decay=0.0)
    optimizer.step()  # the batch is still there
    assert head.rows(index).isfinite().all()
    assert not torch.equal(head.rows(index), before)


def test_control_a_rate_of_nan_turned_rows_to_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widefield.head.lazy_optimizer.check_rate", lambda *args: None)
    head, index = PerExampleHead(10, 3), torch.arange(4)
    optimizer = LazySGD(head, lr=math.nan)
    head(torch.rand(4, 3), index).backward()
    optimizer.step()
    assert head.rows(index).isnan().any()


WRONG_IMAGES: dict[str, Any] = {
    "bytes": torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8),
    "floats of bytes": 255 * torch.rand(4, 3, 16, 16),
    "12 bits": 4095 * torch.rand(4, 3, 16, 16),
    "normalized images": (torch.rand(4, 3, 16, 16) - 0.45) / 0.22,
    "images in [-1, 1]": 2 * torch.rand(4, 3, 16, 16) - 1,
    "channels last": torch.rand(4, 16, 16, 3),
    "one image": torch.rand(3, 16, 16),
    "no images": torch.rand(0, 3, 16, 16),
    "an array": np.zeros((4, 3, 16, 16), np.float32),
    "a list": [0.5],
    "bools": torch.ones(4, 3, 16, 16, dtype=torch.bool),
    "whole numbers": torch.ones(4, 3, 16, 16, dtype=torch.int64),
}
SCENE = AugmentContext(
    mask=torch.ones(4, 1, 16, 16, dtype=torch.bool), gradients=lambda seen: [0.5 - x for x in seen]
)


@every_view
def test_wrong_images_of_views_are_refused(name: str) -> None:
    augmentation, x = build_views(name), torch.rand(4, 3, 16, 16)
    augmentation(x, 2, context=SCENE)
    for what, wrong in WRONG_IMAGES.items():
        any_range = isinstance(wrong, Tensor) and wrong.shape == x.shape and wrong.dtype == x.dtype
        if not (augmentation.any_input_range and any_range):
            refused(lambda w=wrong: augmentation(w, 2, context=SCENE), what)
    for count in (0, -1, 1.5, None):
        refused(lambda c=count: augmentation(x, c, context=SCENE), f"count {count}")


@every_view
def test_what_views_need_is_asked_for(name: str) -> None:
    augmentation, x = build_views(name), torch.rand(4, 3, 16, 16)
    contexts = []
    if augmentation.needs_mask:
        masks = (None, torch.ones(4, 1, 16, 16), torch.ones(4, 1, 8, 8, dtype=torch.bool), [True])
        contexts += [SCENE._replace(mask=mask) for mask in masks]
    if augmentation.gradient_calls:
        contexts += [SCENE._replace(gradients=gradients) for gradients in (None, x)]
    for context in contexts:
        refused(lambda c=context: augmentation(x, 2, context=c), str(context)[:60])


AMOUNTS = (
    "budget",
    "slack",
    "lr",
    "std",
    "size",
    "spread",
    "share",
    "prob",
    "noise",
    "pitch",
    "band",
)


@pytest.mark.parametrize(
    "kind",
    [
        *(views.Noise, views.ObjectNoise, views.Cutout, views.Adversarial, views.Jitter),
        *(views.Scale, views.TimeMask, views.ChannelDrop, views.SpecAugment, views.WaveAugment),
        *(views.Viewmaker, views.ImageAugmentation),
    ],
)
def test_wrong_amounts_of_views_are_refused(kind: Any) -> None:
    good = {"channels": 3, "shape": "ball", "clamp": True, "lr": 1e-3, "budget": 0.1, "steps": 2}
    good |= dict.fromkeys(("std", "size", "spread", "share", "prob"), 0.5)
    parameters = inspect.signature(kind).parameters
    given = {name: value for name, value in good.items() if name in parameters}
    kind(**given)
    amounts = [n for n in parameters if n.endswith("_prob") or n in AMOUNTS]
    assert amounts
    for name in amounts:
        for value in (-0.1, math.nan, math.inf, None):
            refused(lambda n=name, v=value: kind(**{**given, n: v}), f"{name} {value}")


def test_a_jitter_of_nan_is_refused() -> None:
    for at in range(4):
        jitter = [0.1] * 4
        jitter[at] = math.nan
        refused(lambda j=jitter: views.ImageAugmentation(jitter=tuple(j)), f"jitter {at}")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return build_encoder("resnet-tiny", image_size=16, seed=0).eval()


@pytest.mark.parametrize("what", [*WRONG_IMAGES, "one channel", "float64"])
def test_wrong_images_of_an_encoder_are_refused(encoder: Encoder, what: str) -> None:
    x = torch.rand(4, 3, 16, 16)
    wrong = (WRONG_IMAGES | {"one channel": x[:, :1], "float64": x.double()})[what]
    projected = encoders.Projected(encoder, nn.Identity())
    for module in (encoder, encoder.feature_map, projected, encoders.FeatureMap(encoder)):
        assert module(x).isfinite().all()
        refused(lambda m=module: m(wrong), what)


def test_other_wrong_examples_of_encoders_are_refused() -> None:
    tokens = build_encoder("vit_tiny_patch16_224", image_size=32, seed=0)
    refused(lambda: tokens(torch.rand(2, 3, 40, 40)), "another size")
    sounds = build_encoder("resnet-tiny", channels=1, image_size=(1, 4000), rate=4000, seed=0)
    wave = torch.rand(2, 1, 1, 4000) - 0.5
    assert sounds(wave).shape == (2, 128)
    refused(lambda: sounds(32768 * wave), "samples of int16")
    refused(lambda: sounds((32768 * wave).short()), "int16")
    windows = build_encoder("conv1d", channels=2, image_size=(1, 64), seed=0)
    assert windows(1e3 * torch.randn(2, 2, 1, 64)).isfinite().all()  # of any unit
    refused(lambda: windows(torch.randn(2, 1, 64, 2)), "channels last")


def test_control_without_the_check_bytes_have_other_features(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = WRONG_IMAGES["bytes"]
    right_features = encoder(images / 255)
    monkeypatch.setattr(Encoder, "_check", lambda self, x: None)
    assert float((encoder(images) - right_features).detach().abs().max()) > 1


def test_views_that_leave_the_range_a_little_are_no_mistakes(encoder: Encoder) -> None:
    x = torch.rand(4, 3, 16, 16)
    for name in ("random-mask", "viewmaker:published", "specaug:published"):
        for view in build_views(name)(x, 2):
            encoder(view)


def method_of(name: str) -> Method:
    return build(small_recipe(name), small_facts(8), device=torch.device("cpu")).method


@every_method
def test_wrong_batches_of_a_method_are_refused(name: str) -> None:
    method, index = method_of(name), torch.arange(4)
    seen = build_encoder("resnet-tiny", image_size=16, seed=0)
    good = [torch.rand(4, 3, 16, 16) for _ in range(method.view_count)]
    wrong_views = {
        "one view more": [*good, good[0]],
        "one view fewer": good[1:],
        "a tensor": torch.stack(good),
        "an empty batch": [x[:0] for x in good],
        "arrays": [x.numpy() for x in good],
    }
    if len(good) > 1:
        wrong_views["views of other batches"] = [good[0], good[1][:3]]
    for what, wrong in wrong_views.items():
        refused(lambda w=wrong: method(seen, w, index), what)
    for what, given in WRONG_INDEX.items():
        refused(lambda g=given: method(seen, good, g), what)
    if method.examples is not None or hasattr(method, "head"):
        refused(lambda: method(seen, good, index + 6), "an index of no example")
    refused(lambda: method(nn.Flatten(), good, index), "features of another width")
    assert method(seen, good, index).total.isfinite()


def test_control_one_view_of_two_was_compared_with_itself() -> None:
    method = SimCLR(8)
    one = [torch.rand(4, 8)]
    assert method._loss(nn.Identity(), one, torch.arange(4)).total.isfinite()
    refused(lambda: method(nn.Identity(), one, torch.arange(4)), "one view")


def test_no_value_is_read_on_a_device() -> None:
    """Tensors of the device `meta` have none: reading one raises an error of torch."""
    z, index = torch.rand(4, 3, device="meta"), torch.arange(4, device="meta")
    shapes = {"h": Shape("b m"), "target": Shape("b", kind="int64", below="n")}
    check_tensors({"h": z, "target": index}, shapes, {"n": 2})
    check_index(index, 4, examples=2)
    check_examples(torch.rand(4, 3, 16, 16, device="meta"), limits=(0, 1))
    encoder = build_encoder("resnet-tiny", seed=0).to("meta")
    assert encoder(torch.rand(2, 3, 32, 32, device="meta")).shape == (2, 128)
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(z.sum())


def test_the_checks_of_a_step_take_less_than_a_hundredth_of_it() -> None:
    encoder, x = build_encoder("resnet-tiny", seed=0), torch.rand(64, 3, 32, 32)
    method, augmentation, index = SimCLR(128), build_views("expert"), torch.arange(64)
    z = {"z1": torch.rand(64, 128), "z2": torch.rand(64, 128)}

    def step() -> None:
        method(encoder, augmentation(x, 2), index).total.backward()

    def checks() -> None:
        check_examples(x, limits=(0, 1))
        encoder._check(torch.cat([x, x]))
        check_index(index, 64, 64)
        check_tensors(z, {"z1": Shape("b m"), "z2": Shape("b m")})

    step_seconds = min(timeit.repeat(step, number=1, repeat=3))
    assert min(timeit.repeat(checks, number=1, repeat=20)) < 0.01 * step_seconds


TYPED = [
    *(PerExampleHead, Encoder, encoders.Projected, encoders.FeatureMap, encoders.Readout),
    *(encoders.Wide, views.Augmentation, Method, Projector),
]


@pytest.mark.parametrize("kind", TYPED)
def test_a_call_has_the_types_of_forward(kind: type) -> None:
    """The body of `if TYPE_CHECKING` has a `__call__` with the arguments of `forward`."""
    found: dict[str, ast.FunctionDef] = {}
    for base in (
        *kind.__bases__,
        kind,
    ):  # the call of all modules of features is that of their base
        if base.__module__.startswith("widefield."):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            found |= {
                node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            }
    call, forward = found["__call__"], found["forward"]
    assert ast.unparse(call.args) == ast.unparse(forward.args)
    assert call.returns is not None
    assert forward.returns is not None
    assert ast.unparse(call.returns) == ast.unparse(forward.returns)


def test_a_repr_says_what_an_object_is(tmp_path: Any) -> None:
    storage = DiskStorage(tmp_path / "rows", 10, 3, seed=0)
    storage.close()
    expected = {
        "PerExampleHead(examples=10, dim=3, normalize=True, init='embedding', "
        "storage=MemoryStorage(n=10, dim=3, device='cpu'))": PerExampleHead(10, 3),
        "rows', n=10, dim=3, device='cpu')": storage,
        "StepHistory(steps=0)": StepHistory(),
        "name='resnet-tiny', kind='images', channels=3, image_size=(32, 32), dim=128": (
            build_encoder("resnet-tiny", seed=0)
        ),
        "Noise(std=0.2)": build_views("noise", noise_std=0.2),
        "Cutout(size=0.5)": build_views("cutout"),
        "flip_prob=0.5": build_views("expert+noise"),
        "loss=nt_xent(temperature=0.2)": SimCLR(8, temperature=0.2),
        "ema_decay=0.99, steps=3": methods.BYOL(8, encoder=nn.Identity(), steps=3),
    }
    for words, thing in expected.items():
        assert words in repr(thing)
        assert "object at 0x" not in repr(thing)
