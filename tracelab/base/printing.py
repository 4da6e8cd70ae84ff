"""Text of a printed result; ``tracelab/__init__.py`` says what renders it, above this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

text_of: Callable[[Any], str] = repr
