"""Text of a printed result.

What renders a result stands above it. So the public API, ``tracelab/__init__.py``, says here what
that is, and the result asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

text_of: Callable[[Any], str] = repr
