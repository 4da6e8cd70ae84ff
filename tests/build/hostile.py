"""For tests of what shows a trace: a bundled trace with something hostile in each of its names.

``poisoned(source, folder)`` writes the trace once more. Names that the analysis acts upon stay what
they are (calls of CUDA, steps, copies, half of PyTorch's operators), so that every part of a report
has something to say, in other words than before.
"""

from __future__ import annotations

import gzip
import json
import re
from itertools import count, cycle
from pathlib import Path
from typing import Any

_number = count(1)


def _acts(text: str) -> str:
    """A payload that would set `window.pwned` to a number of its own."""
    return text.replace("ACT", f"window.pwned={next(_number)}")


PAYLOADS = (
    _acts("<script>ACT</script>"),
    _acts("</script><script>ACT</script>"),
    _acts("</ScRiPt ><svg/onload=ACT>"),
    _acts("<img src=x onerror=ACT>"),
    _acts("<img src=https://evil.example/seen.png>"),
    _acts('" autofocus onfocus="ACT" x="'),
    _acts("' onmouseover='ACT' x='"),
    _acts("<!--<script>"),
    _acts("--><script>ACT</script>]]>"),
    _acts("</style></title></textarea></noscript><script>ACT</script>"),
    _acts("<style>@import url(https://evil.example/x.css)</style>"),
    _acts("<base href=https://evil.example/><meta http-equiv=refresh content=0;url=/>"),
    _acts('<a href="javascript:ACT">x</a>'),
    _acts("<iframe srcdoc='<script>parent.ACT</script>'>"),
    _acts("<details open ontoggle=ACT>"),
    _acts("${ACT}`+(ACT)+`"),
    _acts("\\u003cscript\\u003eACT\\u003c/script\\u003e"),
    "{{ 6 * 7 }}{% endraw %}{# {{ self }} #}",
    "&lt;b&gt;&amp;&#60;",
    "'; drop table slice; --",
    "\u202egnp.elif\u2066\u200f",
    "\x1b[31m\x07\x9b2J\x7f\u2028\u2029\ufeff\u200b",
    "\r\n\t\v",
    "=cmd|' /C calc'!A0",
    "x" * 5_000,
    "\U0001f525\u00e9\u4e2d",
)
# Keys of the objects of JavaScript.
WHOLE = (
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "",
)

# A file's name can hold everything but a slash; that of the folder and the file close a script.
FOLDER, FILE = _acts("<script>ACT<"), _acts("script><img src=x onerror=ACT>'\"{{7*7}}.json.gz")

_OUR_FRAME = re.compile(r"(?P<file>(?!torch/|<)[^()]*)\.py\((?P<line>\d+)\): (?P<function>.*)")
_KEPT_ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.|nccl:")
_KEPT_ARGUMENTS = frozenset({"cuda_sync_kind", "Collective name"})


class _Poison:
    """The hostile name of each name, always the same."""

    def __init__(self) -> None:
        self._payloads = cycle(PAYLOADS)
        self._whole = iter(WHOLE)
        self._seen: dict[tuple[str, str], str] = {}

    def of(self, category: str, name: str) -> str:
        key = (category.removeprefix("gpu_"), name)
        if key not in self._seen:
            self._seen[key] = self._made(category, name)
        return self._seen[key]

    def _made(self, category: str, name: str) -> str:
        made = name
        if category == "kernel" and not name.startswith("nccl"):
            made = next(self._whole, None) or next(self._payloads) + name
        elif category == "python_function" and (frame := _OUR_FRAME.fullmatch(name)):
            file, line, function = frame.group("file", "line", "function")
            made = f"{file}{next(self._payloads)}.py({line}): {function}{next(self._payloads)}"
        elif (
            (category == "python_function" and name.startswith("nn.Module: "))
            or (category.endswith("user_annotation") and not _KEPT_ANNOTATION.match(name))
            or (category == "cpu_op" and len(self._seen) % 2)
            or category in ("argument", "metadata")
        ):
            made = name + next(self._payloads)
        return made

    def everywhere(self, value: Any) -> Any:
        """A value of the file's own keys, with each text in it poisoned."""
        if isinstance(value, str):
            return self.of("metadata", value)
        if isinstance(value, list):
            return [self.everywhere(one) for one in value]
        if isinstance(value, dict):
            return {key: self.everywhere(one) for key, one in value.items()}
        return value


def poisoned(source: Path, folder: Path, name: str = FILE) -> Path:
    """A bundled trace with hostile names, in a hostile folder of the folder.

    Args:
        source: the compressed trace.
        folder: where to write.
        name: the file's name.
    """
    poison = _Poison()
    content = json.loads(gzip.decompress(source.read_bytes()))
    for event in content["traceEvents"]:
        arguments = event.get("args", {})
        if event["ph"] == "X":
            event["name"] = poison.of(event["cat"], event["name"])
        for key, value in arguments.items():
            if isinstance(value, str) and key not in _KEPT_ARGUMENTS:
                arguments[key] = poison.of("argument", value)
    kept = {"schemaVersion", "traceEvents", "displayTimeUnit", "trace_id"}
    content |= {key: poison.everywhere(value) for key, value in content.items() if key not in kept}
    path = folder / FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    return path
