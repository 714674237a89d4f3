import torch

from widefield.core.hardware import free_device_memory, free_host_memory, host_memory


def test_free_memory_is_a_part_of_all_memory() -> None:
    assert 0 < free_host_memory() <= host_memory()
    assert 0 < free_device_memory(torch.device("cpu")) <= host_memory()
