"""Several checks of one object in one test: what fails is told together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def failures(checks: Iterable[Callable[..., None]], *subjects: Any) -> list[str]:
    """The name and message of each check that fails; the checks are functions that assert."""
    found = []
    for check in checks:
        try:
            check(*subjects)
        except AssertionError as error:
            found.append(f"{check.__name__}: {error}")
    return found
