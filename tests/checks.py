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
            failed = []
            for subject in each:
                try:
                    check(subject)
                except AssertionError as error:
                    failed.append(f"{subject!r}: {error}")
            assert failed == []

        test.__name__ = test.__qualname__ = check.__name__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return decorate


def failures(checks: Iterable[Callable[..., None]], *subjects: Any) -> list[str]:
    """The name and message of each check that fails; the checks are functions that assert."""
    found = []
    for check in checks:
        try:
            check(*subjects)
        except AssertionError as error:
            found.append(f"{check.__name__}: {error}")
    return found
