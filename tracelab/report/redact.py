"""Reports without paths, hosts, arguments and lines of source.

A source file keeps its own name, since findings are useless without it, and PyTorch's their
folders. Traces are called by rank, since their names may begin with the host's. Names of
kernels, functions, modules and annotations stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from tracelab.base.names import short_names
from tracelab.findings.finding import Where
from tracelab.findings.remedies import REMEDIES
from tracelab.report.schema import JobDecision, Provenance, Report, Table

LEFT_OUT = "…"
ALONE = "trace"  # the only trace
_PYTORCH = "torch/"  # as the profiler writes paths
_FOLDER = "folder"
_HOST = "host"
_Value = TypeVar("_Value")

_NOT_A_WORD = re.compile(r"[./\\]")
_SEPARATOR = re.compile(r"[/\\]")
_SOURCE_FILE = re.compile(r"[^/\\]+\.(?:pyx?|ipynb|cc?|c?pp|cxx|cuh?|h|hip|hpp|inl)", re.IGNORECASE)
_LINE = re.compile(r":\d+$")
_PART = r"""[^\s/\\:;,'"`()\[\]{}<>|]+"""
_PATH = re.compile(
    r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`<>]+"  # a URL
    rf"|(?<!\w)[A-Za-z]:[/\\](?:{_PART}[/\\]?)+"  # a drive
    rf"|\\\\{_PART}(?:\\{_PART})*"  # a share
    rf"|(?<![\w.~/\\])/{_PART}(?:/{_PART})+/?"
    rf"|(?<![\w.~/\\])(?:~|\.\.?)/{_PART}(?:/{_PART})*/?"
    # Within a folder: of a file, or of a cut text.
    r"|(?<![\w.~/\\+@-])(?:[\w.~+@-]+/)+[\w.~+@-]*(?:\w\.[A-Za-z]\w*|…)"
)
_ARGUMENTS = re.compile(r"(?<=\.py)\s+--?\w.*", re.DOTALL)
# HOST_PID.TIME.pt.trace.json, as `tensorboard_trace_handler` names files.
_HOST_IN_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)_\d+\.\d{9,}\.")
# Words in such names of people and of our sentences.
_NO_HOST = re.compile(
    r"cuda|device|gpu|host|job|kernel|model|node|profiler?|python|rank|run|step|stream|test|trace"
    r"|train|training|worker"
)
# Tells nothing of the user.
_OURS = frozenset(remedy.documented for remedy in REMEDIES)


class Redaction:
    """Takes paths, host names and arguments out of texts.

    >>> redaction = Redaction(tracelab.analyze("traces/events_item.pt.trace.json.gz"))
    >>> redaction.apply("/home/me/app/train.py:40 reads /data/mine/x.bin")
    'train.py:40 reads …'
    """

    def __init__(self, report: Report) -> None:
        paths = [trace.path for trace in report.traces]
        what = "rank" if report.job is not None else "trace"
        labels = [f"{what} {trace.rank}" for trace in report.traces]
        self._labels = dict(zip(paths, labels if len(labels) > 1 else [ALONE], strict=True))
        for number, unread in enumerate(report.provenance.unread, 1):
            self._labels.setdefault(unread.path, f"unread file {number}")
        self._short = _names_of(zip(short_names(paths), self._labels.values(), strict=False))
        known = {path: _own_name(path) for path in _source_files(report)}
        for path, label in self._labels.items():
            known[path] = known[_own_name(path)] = label
        self._known = _names_of(x for x in known.items() if _NOT_A_WORD.search(x[0]))
        self._hosts = _hosts_in(self._labels)
        self._text = lru_cache(maxsize=None)(self._redact_text)

    def apply(self, value: _Value) -> _Value:
        """Redact all texts in a value."""
        if isinstance(value, str):
            return cast(_Value, self._text(value))
        changed: Any = value
        if isinstance(value, tuple | Table):
            items = [self.apply(item) for item in value]
            changed = type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        elif isinstance(value, Mapping):
            changed = {self.apply(key): self.apply(x) for key, x in value.items()}
        elif is_dataclass(value) and not isinstance(value, type):
            changed = replace(value, **self._fields(value))
        return cast(_Value, changed)

    def _fields(self, value: Any) -> dict[str, Any]:
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Provenance):
            before["paths"] = tuple(self._labels.get(path, _FOLDER) for path in value.paths)
        elif isinstance(value, JobDecision):  # the only sentence with short names
            before["why"] = self._short(value.why)
        elif isinstance(value, Where):  # source lines may tell anything
            before["code"] = None
        return {name: self.apply(x) for name, x in before.items()}

    def _redact_text(self, text: str) -> str:
        if text in self._labels:
            return self._labels[text]
        if text in _OURS:
            return text
        text = _PATH.sub(_shown, self._known(text))
        if self._hosts is not None:
            text = self._hosts.sub(_HOST, text)
        return _ARGUMENTS.sub(f" {LEFT_OUT}", text)


def _names_of(names: Iterable[tuple[str, str]]) -> Any:
    others = dict(names)
    others.pop("", None)
    if not others:
        return str
    listed = "|".join(map(re.escape, sorted(others, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w/\\-])(?:{listed})(?![\w/\\-])")
    return lambda text: pattern.sub(lambda match: others[match[0]], text)


def _own_name(path: str) -> str:
    return _SEPARATOR.split(path)[-1]


def _shown(path: re.Match[str]) -> str:
    name = _own_name(path[0])
    if path[0].startswith(_PYTORCH):
        return path[0]
    return name if _SOURCE_FILE.fullmatch(name) else LEFT_OUT


def _hosts_in(paths: Iterable[str]) -> re.Pattern[str] | None:
    """Make a pattern of the hosts in names of traces, with or without a domain, or cut."""
    matches = (_HOST_IN_NAME.match(_own_name(path)) for path in paths)
    names = {match[1].split(".")[0] for match in matches if match}
    hosts = [name for name in names if not _NO_HOST.fullmatch(name)]
    if not hosts:
        return None
    whole = "|".join(map(re.escape, hosts))
    cut = "|".join(re.escape(name[:n]) for name in hosts for n in range(len(name), 2, -1))
    return re.compile(
        rf"(?<![\w-])(?:(?:{whole})(?:\.[A-Za-z][\w-]*)*(?![\w-])|(?:{cut}){LEFT_OUT})"
    )


def _source_files(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | Table):
        for item in value:
            yield from _source_files(item)
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name in ("file", "where") and isinstance(inner, str):
                path = _LINE.sub("", inner)
                if _SEPARATOR.search(path) and not path.startswith(_PYTORCH):
                    yield path
            else:
                yield from _source_files(inner)
