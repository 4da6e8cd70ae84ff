"""PyTorch, which only recording needs.

Modules of this package import torch inside the functions that use it, so that each of them can be
imported without it. Whatever a user can call first asks `require_pytorch`.
"""

from __future__ import annotations

from tracelab.errors import MissingSupportError


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
        raise MissingSupportError("recording needs torch: pip install 'tracelab[torch]'") from None
