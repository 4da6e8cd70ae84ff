"""Several checks of one object, or one check of many objects, in one test.

What fails is told together. A test of its own for each name of a list costs more than the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def with_each(subjects: Iterable[Any]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Decorate a test of one subject: it is called with each of these, and all failures are told.

    Example: ``@with_each(["cudaFree", "hipFree"])``.
    """

    each = tuple(subjects)
    assert each

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            assert [x for subject in each for x in _failure(repr(subject), check, subject)] == []

        test.__name__ = test.__qualname__ = check.__name__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return decorate


def failures(checks: Iterable[Callable[..., None]], *subjects: Any) -> list[str]:
    """The name and message of each check that fails; the checks are functions that assert."""
    return [x for check in checks for x in _failure(check.__name__, check, *subjects)]


def _failure(name: str, check: Callable[..., None], *subjects: Any) -> list[str]:
    """The message of a check that fails, behind a name; empty where it passes."""
    try:
        check(*subjects)
    except AssertionError as error:
        return [f"{name}: {error}"]
    return []
