"""Pages of the site about the names that the package's docstring speaks of, from their own."""

from __future__ import annotations

import inspect
import re
from pydoc import locate

import tracelab
from tests.build.site_parts import Pages, table, tree

_PAGE = """\
# {name}

```{{eval-rst}}
.. auto{directive}
```
"""


def pages() -> Pages:
    """A page for each name in front of the package, and for each that is named beside them."""
    front = [f"tracelab.{name}" for name in tracelab.__all__ if name[0] != "_"]
    others = re.findall(r"`(tracelab\.[\w.]+)`", inspect.getdoc(tracelab) or "")
    names = {path.rpartition(".")[2]: path for path in [*front, *others] if callable(locate(path))}
    found = {
        f"reference/python/{name}": _PAGE.format(name=name, directive=_directive(path))
        for name, path in names.items()
    }
    rows = [f"| [`{path}`](python/{name}.md) | {_about(path)} |" for name, path in names.items()]
    return {**found, "reference/_python": table("name", "", rows) + tree(found)}


def _directive(path: str) -> str:
    is_class = inspect.isclass(locate(path))
    return f"class:: {path}\n   :members:" if is_class else f"function:: {path}"


def _about(path: str) -> str:
    return (inspect.getdoc(locate(path)) or "").partition("\n")[0]
