"""Files of weights as another library would leave them."""

from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch


def resnet_file(path: Path) -> Path:
    """Write the weights of timm's `resnet10t`, drawn from a seed; return where they are."""
    torch.manual_seed(0)
    safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), path)
    return path


def resnet_to_download(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a download be `resnet_file(file)`; return what is asked for, which a download adds to."""
    asked: list[str] = []

    def fetch(repository: str, name: str) -> str:
        asked.append(repository)
        return str(resnet_file(file))

    def look(repository: str, name: str) -> str | None:
        return str(file) if file.exists() and name == file.name else None

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", look)
    return asked
