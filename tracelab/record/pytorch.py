"""PyTorch, which only recording needs: imported inside the functions that use it."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings

from tracelab.base.errors import MissingSupportError


def require_pytorch() -> None:
    """Import torch, or say how to install it.

    Raises:
        MissingSupportError: torch is not installed.
        ImportError: torch is installed and cannot be imported; its own error says why.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingSupportError("recording needs torch", extra="record") from None


def lacks_gpu() -> bool:
    """True if no program can use a GPU here, without initializing CUDA; False if unknown."""
    import torch

    if torch.version.cuda is None:
        return torch.version.hip is None
    with warnings.catch_warnings(action="ignore"):
        count = torch.cuda._device_count_nvml()
    if count < 0:  # NVML is not there, or does not answer
        return sys.platform == "linux" and not _can_load("libcuda.so.1")
    return count == 0


def rank_of_process() -> int | None:
    """This process's rank in a job of several: as its process group says, else as torchrun does."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() if torch.distributed.get_world_size() > 1 else None
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "1")
    return int(rank) if rank.isdigit() and size != "1" else None


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
