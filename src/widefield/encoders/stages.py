"""Intermediate maps of an encoder, one for each stage, by one forward pass.

Stages are where the resolution changes, or quarters of the depth of a transformer, whose blocks
have one resolution. Forward hooks record them, so the pass is the encoder's own and costs no more.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode
from widefield.encoders.encoder import Encoder, FeatureMap, Normalized, Projected

INPUT = "input"
"""Stage of what the network takes: normalized pixels, the spectrogram of sounds, or samples."""
_INPUT_KEY = "(input)"
"""Key of the network's input among recorded outputs; no submodule has this name."""
# As many as the stages of most convolutional networks.
_BLOCK_STAGES = 4
"""Blocks of a transformer that are stages."""
# Published networks have up to 1 class token and 4 registers; chosen by hand above that.
_MAX_PREFIX = 16
"""Largest number of class and register tokens that is searched for."""


class NoStagesError(ValueError):
    """An encoder has no stages, so that only its pooled features can be taken."""


@dataclass(frozen=True, kw_only=True)
class EncoderStage:
    """A stage: the submodule that returns its map, and the layout of the output."""

    name: str
    """`stem`, `s1`, `s2`, ... of networks whose resolution falls, `b3`, `b6`, ... of blocks."""
    module: str
    """Name of the submodule whose output it is, or `(input)`."""
    layout: Literal["BCHW", "BHWC", "tokens"] = "BCHW"
    grid: tuple[int, int] | None = None
    """Rows and columns of patch tokens."""
    prefix: int = 0
    """Tokens before those of the patches."""
    registers: int = 0
    """Register tokens, the last ones before those of the patches."""

    def maps(self, output: Any) -> dict[str, Tensor]:
        """Return the maps [B, K, h, w] of the module's output.

        Class and register tokens are maps of one position, `NAME.class` and `NAME.registers`.
        """
        x = _tensor(output)
        if self.layout != "tokens":
            return {self.name: x.permute(0, 3, 1, 2) if self.layout == "BHWC" else x}
        assert self.grid is not None
        patches = x[:, self.prefix :].mT.unflatten(2, self.grid)
        maps, first_register = {self.name: patches}, self.prefix - self.registers
        if first_register:
            maps[f"{self.name}.class"] = x[:, :first_register].flatten(1)[:, :, None, None]
        if self.registers:
            tokens = x[:, first_register : self.prefix].flatten(1)
            maps[f"{self.name}.registers"] = tokens[:, :, None, None]
        return maps


def stage_maps(
    encoder: nn.Module, x: Tensor, names: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """Return the intermediate maps of images x[B, C, H, W], stage -> [B, K, h, w].

    `input` is what the network takes. Networks whose resolution falls have `stem`, `s1`, `s2`, ...,
    transformers four blocks, as `b3`, `b6`, `b9`, `b12`: patch tokens on their grid, with `.class`
    and `.registers` for those tokens. They are found by timm's `feature_info`, else by the shapes
    of the outputs of all submodules.

    Args:
        encoder: any module; it runs in evaluation mode and is not changed.
        x: images in [0, 1], windows or sounds, as the encoder takes them.
        names: stages or submodules of the encoder to return; by default all stages.

    Raises:
        ValueError: a name that does not exist, a submodule whose output is no map, or an encoder
            without stages that can be found.

    Example:
        >>> from widefield.encoders import build_encoder
        >>> maps = stage_maps(build_encoder("resnet-tiny", seed=0), torch.rand(2, 3, 32, 32))
        >>> {name: list(m.shape[1:]) for name, m in maps.items()}  # doctest: +NORMALIZE_WHITESPACE
        {'input': [3, 32, 32], 'stem': [16, 32, 32], 's1': [16, 32, 32], 's2': [32, 16, 16],
         's3': [64, 8, 8], 's4': [128, 4, 4]}
    """
    with eval_mode(encoder), torch.no_grad():
        stages = find_stages(encoder, x[:2])
        if names is not None:
            known = [stage.name for stage in stages]
            stages = (*stages, *_by_module(encoder, x[:2], set(names) - set(known)))
        _, maps = forward_with_maps(encoder, x, stages)
    if names is None:
        return maps
    for name in names:
        if name not in maps:
            raise ValueError(_unknown(name, maps))
    return {name: maps[name] for name in names}


def forward_with_maps(
    encoder: nn.Module,
    x: Tensor,
    stages: Sequence[EncoderStage],
    reduce: Callable[[str, Tensor], Tensor] = lambda name, m: m,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output h of the encoder and the maps of `stages`, by one forward pass.

    `reduce(name, map)` is kept in place of a map. It is called as soon as the map is there, so that
    the pass can use its memory again.
    """

    def keep(module: str, output: Any) -> dict[str, Tensor]:
        of_module = (stage.maps(output) for stage in stages if stage.module == module)
        return {name: reduce(name, m) for maps in of_module for name, m in maps.items()}

    with _recorded(encoder, {stage.module for stage in stages}, keep) as outputs:
        h: Tensor = encoder(x)
    return h, {name: m for maps in outputs.values() for name, m in maps.items()}


def find_stages(encoder: nn.Module, x: Tensor) -> tuple[EncoderStage, ...]:
    """Return the stages of an encoder by a pass of images x[B, C, H, W], the input first."""
    # timm states the stages of its networks; those of others follow from the shapes of outputs.
    path, network = _timm_network(encoder)
    with _recorded(encoder, None) as outputs, eval_mode(encoder), torch.no_grad():
        encoder(x)
    size = outputs[_INPUT_KEY].shape[-2:]
    modules = [name for name in _timm_modules(path, network) if name in outputs]
    if not modules:
        blocks = _repeated_blocks(encoder, outputs)
        # Attention has outputs of four dimensions too, so blocks of tokens come first. Two modules
        # of one class may be any pair of layers; from three on they are taken for blocks.
        modules = blocks if len(blocks) > 2 else _by_resolution(outputs, len(x), size) or blocks
    if len({_tensor(outputs[name]).shape for name in modules}) == 1 and len(modules) > 1:
        count = len(modules)
        depths = [round(count * (i + 1) / _BLOCK_STAGES) for i in range(_BLOCK_STAGES)]
        named = {f"b{depth}": modules[depth - 1] for depth in depths if depth}
    else:
        named = _stage_names(modules)
    stages = [_stage_of(network, name, m, outputs[m], tuple(size)) for name, m in named.items()]
    if not stages:
        of = encoder.backbone if isinstance(encoder, Encoder) else encoder
        raise NoStagesError(
            f"no stages are found in {type(of).__name__}: no submodule returns maps "
            "[B, K, h, w] or tokens [B, T, K]; take pooled features"
        )
    return (EncoderStage(name=INPUT, module=_INPUT_KEY), *stages)


def _timm_network(encoder: nn.Module) -> tuple[str, nn.Module]:
    """Return name and module of the network of timm in `encoder`; without one, of itself."""
    for name, module in encoder.named_modules():
        if hasattr(module, "feature_info"):
            return name, module
    return "", encoder


def _timm_modules(path: str, network: nn.Module) -> list[str]:
    info = getattr(network, "feature_info", [])
    entries = getattr(info, "info", info)
    names = [entry["module"] for entry in entries if isinstance(entry, Mapping)]
    return [f"{path}.{name}" if path else name for name in dict.fromkeys(names)]


def _by_resolution(outputs: Mapping[str, Any], batch: int, size: Sequence[int]) -> list[str]:
    """Return the last submodule at each resolution, in the order of the pass."""
    last: dict[torch.Size, str] = {}
    for name, output in outputs.items():
        x = _tensor(output)
        if x.ndim != 4 or len(x) != batch or name in ("", _INPUT_KEY):
            continue
        grid = x.shape[1:3] if _is_channels_last(x, size) else x.shape[2:]
        if grid.numel() > 1:
            last.pop(grid, None)  # moves the resolution to its last use
            last[grid] = name
    return list(last.values()) if len(last) > 1 else []


def _repeated_blocks(encoder: nn.Module, outputs: Mapping[str, Any]) -> list[str]:
    """Return the outermost submodules of one class, with weights, that return tokens."""
    groups: dict[tuple[int, type, torch.Size], list[str]] = {}
    for name, output in outputs.items():
        x = _tensor(output)
        if x.ndim != 3 or name in ("", _INPUT_KEY):
            continue
        module = encoder.get_submodule(name)
        if next(module.parameters(), None) is not None:
            key = (name.count("."), type(module), x.shape)
            groups.setdefault(key, []).append(name)
    blocks = [names for names in groups.values() if len(names) > 1]
    return min(blocks, key=lambda names: (names[0].count("."), -len(names)), default=[])


def _stage_names(modules: Sequence[str]) -> dict[str, str]:
    """Return name -> submodule; the first is the stem if it is named unlike the last."""
    plain = [re.sub(r"\d+", "", name) for name in modules]
    if len(modules) > 1 and plain[0] != plain[-1]:
        return {"stem": modules[0]} | {f"s{i}": name for i, name in enumerate(modules[1:], 1)}
    return {f"s{i}": name for i, name in enumerate(modules, 1)}


def _stage_of(
    network: nn.Module, name: str, module: str, output: Any, size: tuple[int, ...]
) -> EncoderStage:
    x = _tensor(output)
    if x.ndim == 4:
        last = getattr(network, "output_fmt", None) == "NHWC" or _is_channels_last(x, size)
        return EncoderStage(name=name, module=module, layout="BHWC" if last else "BCHW")
    prefix = getattr(network, "num_prefix_tokens", None)
    candidates = range(_MAX_PREFIX + 1) if prefix is None else (prefix, 0)
    for count in candidates:
        grid = _grid(x.shape[1] - count, size)
        if grid is not None:
            token = getattr(network, "reg_token", None)  # [1, registers, K] in timm
            registers = 0 if token is None or not count else token.shape[1]
            return EncoderStage(
                name=name,
                module=module,
                layout="tokens",
                grid=grid,
                prefix=count,
                registers=registers,
            )
    raise NoStagesError(f"the {x.shape[1]} tokens of {module} form no grid: take pooled features")


def _is_channels_last(x: Tensor, size: Sequence[int]) -> bool:
    """Return whether maps are [B, h, w, K]: h and w are then those with the shape of the images."""
    first, last = (_has_aspect(x.shape[k], x.shape[k + 1], size) for k in (1, 2))
    return first and not last


def _grid(count: int, size: tuple[int, ...]) -> tuple[int, int] | None:
    """Return rows and columns of `count` patches of equal sides; None if they do not divide."""
    rows = round((count * size[0] / size[1]) ** 0.5) if count > 0 else 0
    if rows and count % rows == 0 and _has_aspect(rows, count // rows, size):
        return rows, count // rows
    return None


def _has_aspect(rows: int, columns: int, size: Sequence[int]) -> bool:
    """Return whether rows / columns = height / width, with an error below one row or column.

    The sides need not be whole patches.
    """
    return abs(rows * size[1] - columns * size[0]) < max(size)


def _by_module(encoder: nn.Module, x: Tensor, names: set[str]) -> list[EncoderStage]:
    """Return stages for submodules by name; names of class and register tokens are left out."""
    modules, (_, network) = dict(encoder.named_modules()), _timm_network(encoder)
    with _recorded(encoder, names & modules.keys()) as outputs, torch.no_grad():
        encoder(x)
    del outputs[_INPUT_KEY]
    stages = []
    for name, output in outputs.items():
        if _tensor(output).ndim not in (3, 4):
            raise ValueError(
                f"submodule {name!r} returns shape {list(_tensor(output).shape)}: name one that "
                "returns a map [B, K, h, w] or tokens [B, T, K]"
            )
        stages.append(_stage_of(network, name, name, output, tuple(x.shape[-2:])))
    return stages


@contextmanager
def _recorded(
    encoder: nn.Module,
    names: set[str] | None,
    keep: Callable[[str, Any], Any] = lambda name, output: output,
) -> Iterator[dict[str, Any]]:
    """Record `keep` of the submodules `names`, or of all, and their last outputs, as they come.

    `_INPUT_KEY` is the input of the network.
    """
    outputs: dict[str, Any] = {}

    def record(name: str, output: Any) -> None:
        if isinstance(_tensor(output), Tensor):
            outputs.pop(name, None)  # a module that is used twice counts at its last use
            outputs[name] = keep(name, output)

    handles = [
        module.register_forward_hook(lambda m, x, output, name=name: record(name, output))
        for name, module in encoder.named_modules()
        if names is None or name in names
    ]
    first, prepare = _first_module(encoder)
    handles.append(
        first.register_forward_pre_hook(lambda m, inputs: record(_INPUT_KEY, prepare(inputs[0])))
    )
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _first_module(encoder: nn.Module) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """Return a module, and the function of its input that is the input of the network.

    Encoders normalize images and compute spectrograms before the network.
    """
    match encoder:
        case Projected():
            return _first_module(encoder.encoder)
        case Normalized():
            return _first_module(encoder.module)
        case FeatureMap():  # calls a part of the network, whose hooks are not called
            return encoder, encoder.encoder.normalize
        case Encoder():
            return encoder.backbone, lambda x: x
    return encoder, lambda x: x


def _tensor(output: Any) -> Any:
    """Return the output, or its first part: transformers' blocks return tuples."""
    return output[0] if isinstance(output, tuple) and output else output


def _unknown(name: str, maps: Mapping[str, Tensor]) -> str:
    matches = get_close_matches(name, maps, n=1, cutoff=0.5)
    hint = f"did you mean {matches[0]!r}? " if matches else ""
    return f"no stage or submodule {name!r}: {hint}the stages are {', '.join(maps)}"
