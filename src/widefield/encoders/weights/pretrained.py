"""Pretrained weights of timm and torchvision, from the local caches or downloaded."""

from pathlib import Path

import torch

from widefield.encoders.arguments import split_arguments
from widefield.encoders.config import LIBRARY_NETWORKS, VARIANTS, published_cfg, timm_name
from widefield.encoders.vision import published_url


def cached_weights(name: str) -> Path | None:
    """Return the file of `timm:NAME` or `torchvision:NAME` in the local caches, if it is there."""
    url, hub = _places(name)
    if hub:
        from huggingface_hub import try_to_load_from_cache

        for file in ("model.safetensors", "pytorch_model.bin"):
            cached = try_to_load_from_cache(hub, file)
            if isinstance(cached, str):
                return Path(cached)
    return _in_torch_hub(url) if url else None


def _places(name: str) -> tuple[str, str]:
    """Return the address of the weights and their repository on the hub; empty for none."""
    source, _, model = name.partition(":")
    if source == "torchvision":
        return published_url(model), ""
    is_builtin = model in (*VARIANTS, *LIBRARY_NETWORKS)
    cfg = None if is_builtin else published_cfg(timm_name(split_arguments(model)[0]))
    return ("", "") if cfg is None else (cfg.url or "", cfg.hf_hub_id or "")


def download_weights(name: str) -> Path:
    """Download `timm:NAME` or `torchvision:NAME` into the cache of the hub or of torch."""
    url, hub = _places(name)
    if not hub and not url:
        model = name.partition(":")[2]
        raise ValueError(f"there are no weights of {name} to download: give a file, FILE@{model}")
    try:
        if hub:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(hub, "model.safetensors"))
        torch.hub.load_state_dict_from_url(url, map_location="cpu", weights_only=True)
    # The errors of two network libraries have no common class.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        raise ValueError(
            f"the weights of {name} cannot be fetched ({reason}): try again"
        ) from error
    path = _in_torch_hub(url)
    assert path is not None
    return path


def _in_torch_hub(url: str) -> Path | None:
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    return file if file.is_file() else None
