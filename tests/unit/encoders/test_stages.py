"""Stages: the maps are those of timm's own functions, and are found in other networks too."""

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from widefield.encoders import FeatureMap, Normalized, Projected, build_encoder, stage_maps


def shapes(maps: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(x.shape[1:]) for name, x in maps.items()}


@pytest.fixture
def images() -> Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "name", ["resnet-tiny", "resnet18", "convnext_atto", "mobilenetv3_small_050"]
)
def test_convolutional_networks_give_the_maps_of_forward_intermediates(
    name: str, images: Tensor
) -> None:
    encoder = build_encoder(name, seed=0).eval()
    with torch.no_grad():
        _, expected = encoder.backbone.forward_intermediates(encoder.normalize(images))
    maps = stage_maps(encoder, images)
    assert torch.equal(maps.pop("input"), encoder.normalize(images))
    assert len(maps) == len(expected)
    for found, wanted in zip(maps.values(), expected, strict=True):
        assert torch.equal(found, wanted)


def test_transformers_give_patches_on_their_grid_and_class_and_register_tokens_apart() -> None:
    network = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, img_size=(32, 48), patch_size=8, reg_tokens=3
    ).eval()
    x = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        _, expected = network.forward_intermediates(x, return_prefix_tokens=True)
    maps = stage_maps(network, x)
    assert [name for name in maps if "." not in name] == ["input", "b3", "b6", "b9", "b12"]
    for depth in (3, 6, 9, 12):
        patches, prefix = expected[depth - 1]
        assert torch.equal(maps[f"b{depth}"], patches)
        assert patches.shape[2:] == (4, 6)
        assert torch.equal(maps[f"b{depth}.class"].flatten(1), prefix[:, 0])
        assert torch.equal(maps[f"b{depth}.registers"].flatten(1), prefix[:, 1:].flatten(1))


def test_channels_last_networks_give_channels_first_maps(images: Tensor) -> None:
    network = timm.create_model(
        "swin_tiny_patch4_window7_224", num_classes=0, img_size=32, window_size=2
    ).eval()
    assert shapes(stage_maps(network, images)) == {
        "input": [3, 32, 32],
        "s1": [96, 8, 8],
        "s2": [192, 4, 4],
        "s3": [384, 2, 2],
        "s4": [768, 1, 1],
    }


@pytest.mark.parametrize("side", [(64, 64), (64, 96)])
def test_channels_last_networks_of_others_too(side: tuple[int, int]) -> None:
    network = torchvision.models.swin_t().eval()
    x = torch.rand(2, 3, *side, generator=torch.Generator().manual_seed(0))
    _, *maps, last = stage_maps(network, x).values()
    with torch.no_grad():
        for k, found in enumerate(maps, 1):
            assert torch.equal(found, network.features[: 2 * k](x).permute(0, 3, 1, 2))
    assert list(last.shape[1:]) == [768, side[0] // 32, side[1] // 32]
    assert len(maps) == 3


def test_torchvision_networks_have_the_last_map_of_each_resolution(images: Tensor) -> None:
    network = torchvision.models.resnet18().eval()
    maps = stage_maps(network, torch.nn.functional.interpolate(images, size=64))
    assert shapes(maps)["s4"] == [512, 2, 2]
    with torch.no_grad():
        pooled = maps["s4"].mean((2, 3))
        wanted = network(torch.nn.functional.interpolate(images, size=64))
    assert torch.allclose(network.fc(pooled), wanted, atol=1e-5)


def test_windows_of_attention_are_no_stages() -> None:
    """They have four dimensions as maps have: one for the window, and one for the place in it."""
    encoder = build_encoder("torchvision:maxvit_t", image_size=224, seed=0)
    maps = stage_maps(encoder, torch.rand(1, 3, 224, 224))
    grids = {name: tuple(m.shape[1:]) for name, m in maps.items()}
    assert grids == {
        "input": (3, 224, 224),
        "stem": (64, 112, 112),
        "s1": (64, 56, 56),
        "s2": (128, 28, 28),
        "s3": (256, 14, 14),
        "s4": (512, 7, 7),
    }


def test_torchvision_transformers_have_a_class_token() -> None:
    network = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=4, num_heads=2, hidden_dim=16, mlp_dim=32
    ).eval()
    maps = stage_maps(network, torch.rand(2, 3, 32, 32))
    assert shapes(maps)["b4"] == [16, 4, 4]
    assert shapes(maps)["b4.class"] == [16, 1, 1]


class Blocks(nn.Module):
    """A user's transformer without class token, whose blocks return tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        for layer in self.layers:
            x = layer(x)[0]
        return x.mean(1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x + self.inner(x).relu(), None


def test_modules_of_users_have_stages(images: Tensor) -> None:
    network = Blocks()
    maps = stage_maps(network, images)
    assert shapes(maps) == {"input": [3, 32, 32], "b1": [8, 4, 4], "b2": [8, 4, 4], "b3": [8, 4, 4]}
    assert torch.allclose(maps["b3"].mean((2, 3)), network(images), atol=1e-6)


class Wrapped(nn.Module):
    """A network of timm inside a module of a user."""

    def __init__(self, name: str, **settings: object) -> None:
        super().__init__()
        self.body = timm.create_model(name, num_classes=0, **settings)
        self.head = nn.Linear(self.body.num_features, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize(
    ("name", "settings", "names"),
    [
        ("resnet10t", {}, ["input", "stem", "s1", "s2", "s3", "s4"]),
        (
            "vit_tiny_patch16_224",
            {"img_size": 32, "patch_size": 8, "depth": 4},
            ["input", *(f"b{i}{end}" for i in range(1, 5) for end in ("", ".class"))],
        ),
    ],
)
def test_networks_inside_a_module_have_the_same_stages(
    name: str, settings: dict[str, int], names: list[str], images: Tensor
) -> None:
    wrapped = Wrapped(name, **settings).eval()
    maps = stage_maps(wrapped, images)
    assert list(maps) == names
    for stage, found in stage_maps(wrapped.body, images).items():
        assert torch.equal(maps[stage], found)


def test_attention_is_not_taken_for_maps(images: Tensor) -> None:
    """Queries [B, heads, T, d] of a transformer that timm did not list."""
    network = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, img_size=32, patch_size=8, depth=4, qk_norm=True
    )
    del network.feature_info
    assert [name for name in stage_maps(network.eval(), images) if "." not in name] == [
        *("input", "b1", "b2", "b3", "b4")
    ]


def test_submodules_are_stages_by_name(images: Tensor) -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    maps = stage_maps(encoder, images, ["s3", "backbone.layer3", "backbone.layer2.0.conv1"])
    assert torch.equal(maps["s3"], maps["backbone.layer3"])
    assert list(maps["backbone.layer2.0.conv1"].shape[1:]) == [32, 16, 16]


@pytest.mark.parametrize(
    ("name", "size", "rate", "stage", "shape"),
    [
        ("conv1d", (1, 128), None, "s3", [128, 1, 16]),
        ("resnet-tiny", (1, 8000), 8000, "input", [1, 64, 64]),
        ("conv1d", (1, 8000), 8000, "s1", [32, 1, 572]),
    ],
)
def test_windows_and_sounds_have_stages(
    name: str, size: tuple[int, int], rate: int | None, stage: str, shape: list[int]
) -> None:
    encoder = build_encoder(name, channels=1, image_size=size, rate=rate, seed=0)
    assert list(stage_maps(encoder, torch.rand(2, 1, *size))[stage].shape[1:]) == shape


def test_the_input_is_what_the_network_takes_inside_a_module_too(images: Tensor) -> None:
    encoder = build_encoder("resnet-tiny", mean=[0.5] * 3, std=[0.25] * 3, seed=0)
    expected = (images - 0.5) / 0.25
    for module in (
        encoder,
        FeatureMap(encoder),
        Projected(encoder, nn.Identity()),
        Normalized(encoder.backbone, mean=[0.5] * 3, std=[0.25] * 3),
    ):
        torch.testing.assert_close(stage_maps(module, images)["input"], expected)


def test_the_encoder_is_not_changed(images: Tensor) -> None:
    encoder = build_encoder("resnet-tiny", seed=0).train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    stage_maps(encoder, images)
    assert encoder.training
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())
    assert not any(module._forward_hooks for module in encoder.modules())


def test_names_that_do_not_exist_are_answered_with_those_that_do(images: Tensor) -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    with pytest.raises(ValueError, match=r"did you mean 's[1-4]'.*input, stem, s1, s2, s3, s4"):
        stage_maps(encoder, images, ["s5"])
    with pytest.raises(ValueError, match=r"returns shape .2, 128.: name one that returns a map"):
        stage_maps(encoder, images, ["backbone.global_pool"])


def test_an_encoder_without_stages_is_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="no stages are found in Sequential"):
        stage_maps(nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)), images)
