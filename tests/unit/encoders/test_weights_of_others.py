"""Vision transformers of others against the formula of their authors, and without a layer."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from axes import each_value
from tests import made_vits as made
from tests.made_vits import HEADS, State, images
from widefield.core.form import Form
from widefield.encoders import (
    Encoder,
    adapt_encoder,
    load_encoder,
    load_foreign,
    load_model_folder,
    load_module,
    save_encoder,
)
from widefield.encoders.weights.files import timm_snippet
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.model_folder import register_with_timm, save_model_folder

DINOV2 = "vit_small_patch14_dinov2,depth=4,embed_dim=48,num_heads=3"
DINOV2_REG = "vit_small_patch14_reg4_dinov2,depth=4,embed_dim=48,num_heads=3"
PLAIN = "vit_tiny_patch16_224,depth=4,embed_dim=48,num_heads=3,patch_size=14"


@torch.no_grad()
def computed(encoder: Encoder, x: Tensor = images()) -> Tensor:  # noqa: B008
    """Features of images that are normalized already."""
    adapted, _ = adapt_encoder(encoder, Form(channels=x.shape[1], size=(x.shape[2], x.shape[3])))
    return adapted.eval().backbone(x)


def distance(x: Tensor, y: Tensor) -> float:
    return float((x - y).norm() / y.norm())


def saved(state: State, folder: Path) -> Path:
    """A file of the state; safetensors hold no views of one tensor."""
    file = folder / "weights.safetensors"
    safetensors.torch.save_file({k: v.clone() for k, v in state.items()}, file)
    return file


DINOV2_FILES: dict[str, tuple[State, made.Spell, str]] = {
    "Meta": (made.dinov2(), made.below(""), DINOV2),
    "Meta in one chunk": (made.dinov2(), made.chunked(1), DINOV2),
    "Meta in chunks": (made.dinov2(), made.chunked(2), DINOV2),
    "Meta's trainer": (
        made.dinov2(),
        lambda state: made.below("teacher.backbone.")(made.chunked(4)(state)),
        DINOV2,
    ),
    "Meta, registers": (made.dinov2(4), made.chunked(2), DINOV2_REG),
    "Meta, 2 registers": (made.dinov2(2), made.below(""), f"{DINOV2_REG},reg_tokens=2"),
    "Meta, SwiGLU": (
        made.dinov2(swiglu=True),
        made.below(""),
        "vit_giant_patch14_dinov2,depth=4,embed_dim=48,num_heads=3",
    ),
    "transformers": (made.dinov2(), made.hf_dinov2, DINOV2),
    "transformers, registers": (made.dinov2(4), made.hf_dinov2, DINOV2_REG),
    "transformers, classifier": (
        made.dinov2(4),
        lambda state: made.below("dinov2.")(made.hf_dinov2(state)),
        DINOV2_REG,
    ),
    "transformers, SwiGLU, in memory": (
        made.dinov2(swiglu=True),
        made.hf_dinov2_in_memory,
        "vit_giant_patch14_dinov2,depth=4,embed_dim=48,num_heads=3",
    ),
}


@pytest.mark.parametrize("case", DINOV2_FILES)
def test_dinov2_gives_the_features_of_its_authors(case: str, tmp_path: Path) -> None:
    """At other sizes too; the heads are not in the file, and are asked for."""
    state, spell, name = DINOV2_FILES[case]
    file = saved(spell(state), tmp_path)
    with pytest.raises(ValueError, match=r"number of attention heads .* width 48") as refused:
        load_foreign(file)
    asked = re.findall(r"append @(\S+)=N to the file", str(refused.value))[0]
    encoder, match = load_foreign(file, f"{asked}={HEADS}")
    assert set(match.architecture.split(",")) >= set(name.split(","))
    for x in (images(), images(42, 56)):
        assert distance(computed(encoder, x), made.features(state, x)) < 1e-5
    wrong, _ = load_foreign(file, f"{asked}=1")  # the control: heads matter
    assert distance(computed(wrong), made.features(state, images())) > 0.05


DINOV3_FILES: dict[str, tuple[State, made.Spell]] = {
    "Meta": (made.dinov3(), made.below("")),
    "Meta's trainer": (made.dinov3(), made.below("teacher.backbone.")),
    "Meta, periods in bfloat16": (made.dinov3(bf16=True), made.below("")),
    "Meta, SwiGLU": (made.dinov3(swiglu=True), made.below("")),
    "Meta, SwiGLU without bias": (made.dinov3(swiglu=True, bias=False), made.below("")),
    "Meta, 2 storage tokens": (made.dinov3(2), made.below("")),
    "Meta, norm of small crops": (
        made.dinov3(),
        lambda state: state | {"local_cls_norm.weight": torch.zeros(48)},
    ),
}


@pytest.mark.parametrize("case", DINOV3_FILES)
def test_dinov3_loads_by_itself_and_gives_the_features_of_its_authors(
    case: str, tmp_path: Path
) -> None:
    state, spell = DINOV3_FILES[case]
    encoder, match = load_foreign(saved(spell(state), tmp_path))
    assert f"num_heads={HEADS}" in match.architecture  # from the periods
    save_encoder(encoder, tmp_path)
    for x in (images(), images(42, 56)):
        expected = made.features(state, x, eps=1e-5)
        assert distance(computed(encoder, x), expected) < 1e-5
        assert distance(computed(load_encoder(tmp_path), x), expected) < 1e-5
    # The controls: timm's pooling of this architecture, and periods that are not rounded.
    for argument in ("global_pool=token", "rope_periods=bf16"):
        if argument in match.architecture:
            other = f"{match.architecture}".replace(f",{argument}", "")
            file = saved(made.below("")(timm_names(encoder)), tmp_path)
            assert distance(computed(load_foreign(file, other)[0]), computed(encoder)) > 1e-4


def timm_names(encoder: Encoder) -> State:
    return dict(encoder.backbone.state_dict())


HF_CONFIG = {"num_attention_heads": HEADS, "num_hidden_layers": made.DEPTH, "hidden_act": "gelu"}


@pytest.mark.parametrize(
    ("state", "spell", "model", "eps"),
    [
        (made.dinov2(4), made.hf_dinov2, "dinov2_with_registers", 1e-6),
        (made.dinov2(swiglu=True), made.hf_dinov2, "dinov2", 1e-6),
        (made.dinov3(), made.hf_dinov3, "dinov3_vit", 1e-5),
        (made.dinov3(swiglu=True), made.hf_dinov3, "dinov3_vit", 1e-5),
        (made.dinov3(), made.hf_dinov3_in_memory, "dinov3_vit", 1e-5),
        (made.vit(), made.hf_vit, "vit", 1e-12),
        (made.vit(), made.hf_vit_in_memory, "vit", 1e-12),
        (made.vit(), lambda s: made.below("vit.")(made.hf_vit(s)), "vit_mae", 1e-2),
    ],
)
def test_folders_of_transformers(
    state: State, spell: made.Spell, model: str, eps: float, tmp_path: Path
) -> None:
    config = {**HF_CONFIG, "model_type": model, "layer_norm_eps": eps, "image_size": made.SIDE}
    safetensors.torch.save_file(spell(state), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    encoder, _ = load_model_folder(tmp_path)
    assert encoder.config.image_size == (28, 28)
    expected = made.features(state, images(), eps=eps)
    assert distance(computed(encoder), expected) < 1e-5
    save_encoder(encoder, tmp_path / "again")
    assert distance(computed(load_encoder(tmp_path / "again")), expected) < 1e-5
    for key, value, message in (
        ("hidden_act", "gelu_new", "has hidden_act 'gelu_new'"),
        ("rope_theta", 50.0, "has rope_theta 50.0"),
        ("num_hidden_layers", 5, r"lacks blocks\.4\."),
        ("num_attention_heads", None, "lacks num_attention_heads"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
        with pytest.raises(ValueError, match=message):
            load_model_folder(tmp_path)


@pytest.mark.parametrize("act", ["gelu", None, "silu"])
def test_a_gated_dinov3_of_transformers_has_silu_or_is_refused(
    act: str | None, tmp_path: Path
) -> None:
    """transformers computes the gate by `hidden_act`, whose default is gelu, and timm by silu."""
    named = {} if act is None else {"hidden_act": act}
    sizes = {name: HF_CONFIG[name] for name in ("num_attention_heads", "num_hidden_layers")}
    config = {**sizes, **named, "model_type": "dinov3_vit", "use_gated_mlp": True}
    tensors = made.hf_dinov3(made.dinov3(swiglu=True))
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    if act == "silu":
        encoder, _ = load_model_folder(tmp_path)
        expected = made.features(made.dinov3(swiglu=True), images(), eps=1e-5)
        assert distance(computed(encoder), expected) < 1e-5
        return
    with pytest.raises(ValueError, match="has hidden_act 'gelu', which no encoder here has"):
        load_model_folder(tmp_path)


@pytest.mark.parametrize("name", ["relu", "silu", "quick_gelu"])
def test_a_folder_of_transformers_has_its_activation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tensor shows it: the usual one gave other features without a word."""
    formulas: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": lambda x: x.clamp_min(0),
        "silu": lambda x: x * x.sigmoid(),
        "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    }
    config = {**HF_CONFIG, "model_type": "vit", "hidden_act": name, "layer_norm_eps": 1e-12}
    safetensors.torch.save_file(made.hf_vit(made.vit()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    encoder, _ = load_model_folder(tmp_path)
    usual = made.features(made.vit(), images(), eps=1e-12)
    monkeypatch.setattr(made.F, "gelu", formulas[name])
    expected = made.features(made.vit(), images(), eps=1e-12)
    assert distance(computed(encoder), expected) < 1e-5 < distance(usual, expected)
    save_encoder(encoder, tmp_path / "again")
    assert distance(computed(load_encoder(tmp_path / "again")), expected) < 1e-5


def test_vits_of_transformers_have_another_eps(tmp_path: Path) -> None:
    state = made.vit()
    state["patch_embed.proj.weight"] *= 1e-3  # so that eps matters
    file = saved(made.hf_vit(state), tmp_path)
    encoder, _ = load_foreign(file, PLAIN)
    expected = made.features(state, images(), eps=1e-12)
    assert distance(computed(encoder), expected) < 1e-5
    older, _ = load_foreign(file, f"{PLAIN},norm_eps=1e-6")
    assert distance(computed(older), made.features(state, images(), eps=1e-6)) < 1e-5


def test_networks_with_settings_that_timm_lacks_are_described_whole(tmp_path: Path) -> None:
    """The lines that the JSON is for and the timm folder give the same features."""
    encoder, _ = load_foreign(saved(made.dinov3(bf16=True), tmp_path))
    settings = {**vars(encoder.config), "name": f"{encoder.config.name},norm_eps=0.01"}
    encoder = type(encoder)(type(encoder.config)(**settings), encoder.backbone).eval()
    save_encoder(encoder, tmp_path)
    space: dict[str, nn.Module] = {}
    exec(timm_snippet(encoder.config, str(tmp_path / "encoder")), space)
    with torch.no_grad():
        x = images(224, 224)
        assert distance(space["model"](x), load_encoder(tmp_path).backbone(x)) < 1e-6
        plain = timm.create_model(**encoder.config.timm).eval()  # type: ignore[arg-type]
        plain.load_state_dict(encoder.backbone.state_dict())
        assert distance(plain(x), space["model"](x)) > 1e-4  # the control
    save_model_folder(encoder, tmp_path / "folder", card="")
    register_with_timm()
    of_folder = timm.create_model(f"local-dir:{tmp_path}/folder", pretrained=True).eval()
    with torch.no_grad():
        assert distance(of_folder(x), space["model"](x)) < 1e-6


def without(pattern: str, state: State) -> State:
    return {name: x for name, x in state.items() if not re.search(pattern, name)}


@pytest.mark.parametrize(
    "missing",
    [
        "pos_embed",
        "cls_token",
        r"^norm\.",
        r"patch_embed\.proj\.bias",
        r"patch_embed\.proj\.weight",
        r"blocks\.0\.",
        r"blocks\.2\.",
        r"blocks\.3\.",
        r"blocks\.1\.norm1\.bias",
        r"blocks\.1\.attn\.qkv",
        "qkv.bias",
    ],
)
def test_a_vit_that_lacks_a_layer_is_refused(missing: str, tmp_path: Path) -> None:
    """The control, the old rule: 90 % of the tensors were enough, and the rest was random."""
    state = made.vit()
    file = saved(without(missing, state), tmp_path)
    with pytest.raises(ValueError, match="fits no encoder") as refused:
        load_foreign(file, PLAIN)
    assert re.search(rf"lacks .*{missing.strip('^')}", str(refused.value)) or "more" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)
    network = timm.create_model(**load_foreign(saved(state, tmp_path), PLAIN)[0].config.timm)
    network.load_state_dict(without(missing, state), strict=False)
    with torch.no_grad():
        assert distance(network.eval()(images()), made.features(state, images())) > 0.01


@pytest.mark.parametrize(
    ("state", "name", "missing"),
    [
        (made.dinov2(), DINOV2, r"blocks.1.ls1.gamma"),
        (made.dinov2(4), DINOV2_REG, "register_tokens"),
        (made.dinov3(), None, "storage_tokens"),
        (made.dinov3(), None, r"blocks.0.mlp.fc2.weight"),
    ],
)
def test_parts_of_dinov2_and_dinov3_are_missed_too(
    state: State, name: str | None, missing: str, tmp_path: Path
) -> None:
    file = saved(without(re.escape(missing), state), tmp_path)
    with pytest.raises(ValueError, match="fits no encoder"):
        load_foreign(file, name)


@pytest.mark.parametrize(
    "extra",
    [
        *("dist_token", "reg_token", "norm_pre.weight", "fc_norm.weight", "blocks.4.norm1.weight"),
        *("blocks.0.ls1.gamma", "blocks.0.attn.q_norm.weight", "cls_norm.bias"),
    ],
)
def test_layers_that_the_architecture_lacks_are_not_left_out(extra: str, tmp_path: Path) -> None:
    state = made.vit()
    with pytest.raises(ValueError, match=rf"has no place for .*{re.escape(extra)}"):
        load_foreign(saved(state | {extra: torch.ones(48)}, tmp_path), PLAIN)
    unused = (
        "mask_token",
        "masked_embed",
        "decoder_embed.weight",
        "head.weight",
        "decoder_norm.bias",
    )
    file = saved(state | {name: torch.ones(48) for name in unused}, tmp_path)
    assert distance(computed(load_foreign(file, PLAIN)[0]), made.features(state, images())) < 1e-5


def test_other_networks_that_lack_a_layer_are_refused(tmp_path: Path) -> None:
    """Running statistics are no parameters, and reach the features all the same."""
    state = models.resnet18(weights=None).state_dict()
    names = ("bn1.weight", "bn1.running_mean", "layer4.1.bn2.running_var", "layer1.0.conv1.weight")
    for missing in names:
        file = saved(without(rf"^{missing}$", state), tmp_path)
        with pytest.raises(ValueError, match=f"99 of its 100 tensors there, lacks {missing};"):
            load_foreign(file, "resnet18")
    with pytest.raises(ValueError, match="finds 20 of its 100 tensors"):
        load_foreign(saved({k: x for k, x in state.items() if "layer1" in k}, tmp_path), "resnet18")
    counters = saved(without("num_batches_tracked", state), tmp_path)
    assert load_foreign(counters, "resnet18")[1].random == ()


@pytest.mark.parametrize("masked", [True, False])
def test_fc_norm_is_filled_as_timm_does_or_refused(masked: bool, tmp_path: Path) -> None:
    """A network trained on masked images has `norm`, which timm's EVA calls `fc_norm`."""
    name = "eva02_tiny_patch14_224,depth=1"
    network = timm.create_model("eva02_tiny_patch14_224", depth=1, num_classes=0).eval()
    nn.init.normal_(network.fc_norm.weight)
    state = {k.replace("fc_norm", "norm"): v for k, v in network.state_dict().items()}
    state |= {"mask_token": torch.zeros(1, 1, 192)} if masked else {}
    file = saved(state, tmp_path)
    if not masked:
        with pytest.raises(ValueError, match=r"lacks fc_norm\.weight, fc_norm\.bias"):
            load_foreign(file, name)
        return
    encoder, match = load_foreign(file, name)
    assert "fc_norm filled from norm, as timm does" in match.line()
    x = images(224, 224)
    with torch.no_grad():
        assert distance(encoder.backbone(x), network(x)) < 1e-6


@each_value(("side", [42, 70]), ("channels", [1, 3, 4]))
def test_size_and_channels_are_those_of_the_file(side: int, channels: int, tmp_path: Path) -> None:
    state = made.vit(side=side, channels=channels)
    encoder, match = load_foreign(saved(state, tmp_path), PLAIN)
    assert encoder.config.image_size == (side, side)
    assert encoder.config.channels == channels == len(encoder.config.mean)
    assert (f"first layer for {channels} channels" in match.line()) == (channels != 3)
    x = images(side, side, channels)
    assert distance(computed(encoder, x), made.features(state, x)) < 1e-5


def test_positions_of_no_square_are_refused(tmp_path: Path) -> None:
    state = made.vit()
    state["pos_embed"] = torch.zeros(1, 1 + 2 * 3, 48)
    with pytest.raises(ValueError, match="others in another shape: pos_embed;"):
        load_foreign(saved(state, tmp_path), PLAIN)


def test_first_layers_of_other_networks_have_their_channels(tmp_path: Path) -> None:
    network = timm.create_model("resnet18", in_chans=4, num_classes=0).eval()
    encoder, match = load_foreign(saved(network.state_dict(), tmp_path), "resnet18")
    assert "first layer for 4 channels" in match.line()
    with torch.no_grad():
        x = images(32, 32, 4)
        assert distance(encoder.backbone(x), network(x)) < 1e-6


def test_moco_v3s_small_vit_has_12_heads(tmp_path: Path) -> None:
    network = timm.create_model("vit_small_patch16_224", num_heads=12, num_classes=0).eval()
    state = {f"module.base_encoder.{name}": x for name, x in network.state_dict().items()}
    encoder, match = load_foreign(saved(state, tmp_path))
    assert match.architecture == "vit_small_patch16_224,num_heads=12"
    with torch.no_grad():
        assert distance(encoder.backbone(images(224, 224)), network(images(224, 224))) < 1e-6


def test_modules_of_other_libraries_are_known_as_their_files_are() -> None:
    module = nn.Module()
    state = made.dinov3()
    for name, value in state.items():
        parent = module
        for part in name.split(".")[:-1]:
            if not hasattr(parent, part):
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        parent.register_buffer(name.split(".")[-1], value)
    expected = made.features(state, images(), eps=1e-5)
    assert distance(computed(load_module(module)), expected) < 1e-5


def test_periods_of_another_base_and_biases_of_keys_are_refused(tmp_path: Path) -> None:
    state = made.dinov3()
    other = {"rope_embed.periods": 50.0 ** (torch.arange(4) / 4)}
    with pytest.raises(ValueError, match=r"rope_embed\.periods of the file are not 100"):
        load_foreign(saved(state | other, tmp_path))
    with pytest.raises(ValueError, match=r"has no place for blocks\.0\.attn\.k_bias"):
        load_foreign(saved(without("bias_mask", state), tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{DINOV2},dept=2", "did you mean 'depth'"),
        ("vit_small_patch14_dinov2,depth=two", "depth is 'two': give a number from 1 to 200"),
        ("vit_small_patch14_dinov2,depth=000000000300", "depth is '000000000300': give"),
        ("vit_small_patch14_dinov2,num_heads=0", "num_heads is '0': give a number from 1 to 256"),
        ("vit_small_patch14_dinov2,num_heads=5", "give num_heads that divide the width"),
        ("vit_small_patch14_dinov2,patch_size=0", "patch_size is '0'"),
        ("vit_small_patch14_reg4_dinov2,reg_tokens=-1", "reg_tokens is '-1': give a number from 0"),
        ("vit_small_patch14_dinov2,global_pool=max", "give token or avg"),
        ("vit_small_patch14_dinov2,norm_eps=-1", "norm_eps is '-1'"),
        ("vit_small_patch14_dinov2,embed_dim=48", "needs num_heads that divide it"),
        ("resnet18,depth=2", "'resnet18' takes no arguments"),
        ("vit_small_patch14_dinov2,act_layer=elu", "give gelu or quick_gelu or relu or silu"),
        ("vit_tiny_patch16_224,num_reg_tokens=4", "has no argument num_reg_tokens: leave it out"),
        ("eva02_tiny_patch14_224,act_layer=relu", "has no argument act_layer: leave it out"),
    ],
)
def test_wrong_arguments_of_a_name_are_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_foreign(saved(made.vit(), tmp_path), name)


def test_swin_of_its_authors_has_the_names_of_timm() -> None:
    here = [
        f"layers.{n}.downsample.{end}"
        for n in (1, 2, 3)
        for end in ("norm.weight", "reduction.weight")
    ]
    theirs = [
        f"layers.{n}.downsample.{end}"
        for n in (0, 1, 2)
        for end in ("norm.weight", "reduction.weight")
    ]
    for prefix in ("", "model.", "module.encoder."):
        for names in (here, theirs):
            state = {prefix + name: torch.full((1,), float(k)) for k, name in enumerate(names)}
            renamed = rename_to_timm(state)
            assert renamed == {
                prefix + name: state[prefix + old] for name, old in zip(here, names, strict=True)
            }


@pytest.mark.parametrize("name", [None, "vit_tiny_patch16_224,depth=2,embed_dim=48,num_heads=3"])
def test_fine_tuned_after_mae(name: str | None, tmp_path: Path) -> None:
    """`fc_norm` of the average in place of `norm` of the tokens."""
    arguments = {
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "global_pool": "avg",
        "num_classes": 5,
    }
    network = timm.create_model("vit_tiny_patch16_224", **arguments).eval()
    with torch.no_grad():
        network.fc_norm.weight.uniform_(0.5, 2)
    file = saved(network.state_dict(), tmp_path)
    if name is None:
        with pytest.raises(ValueError, match="num_heads=N"):
            load_foreign(file)
        return
    encoder, _ = load_foreign(file, name)
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(x), pre_logits=True)
        assert distance(encoder.backbone(x), expected) < 1e-5


@pytest.mark.parametrize("name", [None, "resnet18"])
def test_batch_norm_without_statistics(name: str | None, tmp_path: Path) -> None:
    state = timm.create_model("resnet18").state_dict()
    file = saved({k: v for k, v in state.items() if "running" not in k}, tmp_path)
    with pytest.raises(ValueError, match="save the statistics of its batch normalization") as error:
        load_foreign(file, name)
    assert "append" not in str(error.value)


def test_who_named_an_architecture_is_not_told_to_name_one(tmp_path: Path) -> None:
    file = saved(timm.create_model("resnet18").state_dict(), tmp_path)
    with pytest.raises(ValueError, match="name that one, or leave @NAME out") as error:
        load_foreign(file, "vit_tiny_patch16_224")
    assert "append" not in str(error.value)


@pytest.mark.parametrize("name", ["convnext_atto", "efficientvit_b0"])
@torch.no_grad()
def test_classifiers_in_a_head_that_makes_features_are_left_out(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = timm.create_model(name).eval()
    encoder, _ = load_foreign(saved(network.state_dict(), tmp_path), name)
    network.reset_classifier(0)
    x = images(64, 64)
    torch.testing.assert_close(computed(encoder, x), network(x))


@torch.no_grad()
def test_a_module_with_other_heads_keeps_them() -> None:
    """Attention is nearly uniform with random weights, so that heads hardly show in features."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {"num_classes": 0, "img_size": 224}
    x = images(224, 224)
    for heads in (3, 6):
        module = timm.create_model("vit_tiny_patch16_224", num_heads=heads, **settings).eval()
        encoder = load_module(module)
        assert (encoder.config.name == "vit_tiny_patch16_224") == (heads == 3)
        torch.testing.assert_close(encoder.backbone(x), module(x))
        if heads == 3:
            assert load_module(module.bfloat16()).config.name == "vit_tiny_patch16_224"
    with pytest.raises(ValueError, match=r"call \.float\(\) on it, which has bfloat16"):
        load_module(module.bfloat16())


class Words(nn.Module):
    """Returns features beside others, as modules of transformers do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.pooler = network, nn.Linear(192, 192)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.network(x)
        return {"tokens": h, "pooled": self.pooler(h)}


def test_a_module_with_other_heads_that_returns_a_mapping_is_refused() -> None:
    torch.manual_seed(0)
    for heads in (3, 6):
        module = Words(timm.create_model("vit_tiny_patch16_224", num_classes=0, num_heads=heads))
        if heads == 3:
            assert load_module(module).config.name == "vit_tiny_patch16_224"
            continue
        with pytest.raises(ValueError, match=r"returns dict for images .* such as its item"):
            load_module(module)


@pytest.mark.parametrize("changed", [{"output_stride": 8}, {"global_pool": "max"}, {}])
@pytest.mark.parametrize("classes", [0, 10])
@torch.no_grad()
def test_a_module_with_settings_that_no_weight_shows_keeps_them(
    classes: int, changed: dict[str, str | int]
) -> None:
    torch.manual_seed(0)
    module = timm.create_model("resnet10t", num_classes=classes, **changed).eval()
    encoder, x = load_module(module), images(64, 64)
    assert (encoder.config.name == "resnet10t") == (not changed)
    if not changed:
        module.reset_classifier(0)
    torch.testing.assert_close(encoder.backbone(x), module(x))
