"""Text and HTML of a result; ``tracelab/__init__.py`` says what renders them, above this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _repr_of(result: Any, _form: str) -> str:
    return repr(result)


render: Callable[[Any, str], str] = _repr_of


class Shown:
    """Base of results that print as a terminal shows them, and show themselves in a notebook."""

    __slots__ = ()

    def __str__(self) -> str:
        return render(self, "text")

    def _repr_html_(self) -> str:
        return render(self, "notebook")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:  # IPython's text would be the repr
        return {"text/plain": str(self), "text/html": self._repr_html_()}
