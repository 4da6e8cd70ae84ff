"""Options of an analysis, and the checks of what a user passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from os import PathLike, fspath
from types import MappingProxyType, NoneType, UnionType
from typing import Any, get_args

from msgspec.structs import force_setattr

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError
from tracelab.base.safe_text import brief

PROFILER_STEP = r"^ProfilerStep#\d+$"


class Options(Record):
    """Options of an analysis.

    Attributes:
        comm_pattern: regular expressions of further communication kernels.
        step_on: regular expression of the host annotations that are the steps. By default
            they are the profiler's, and where it has marked none those of vLLM, SGLang or
            Lightning; `traces[].step_pattern` of the report says by which they were found.
        step: the only step to measure; None for the whole trace and every step.
        source: folders where to look for the program's source, before where the trace says.
        source_within: folders, links followed, outside of which no source is read, whatever a trace
            names; () for those of `source` and the current one.
        max_unpacked_bytes: a file that unpacks to more is refused; None for 200 times its size.
        cache: keep what was read of large files in the user's cache folder, and use that.
        processes: how many may read a huge file together. Where Python starts processes afresh, a
            script must ask for more than one under ``if __name__ == "__main__":`` only.
        all_pairs: report the overlap of every pair of streams, however many they are.
        job: the files are the ranks of one job, whatever they themselves say.
        prices: predict by replay what the fix of each finding saves.
        fixes: of which findings `whatif` predicts the fixes: their numbers in the report, from 1
            on, ids of rules, or "all".
        edits: further changes whose step is predicted: texts such as "unblock:train.py:40", or
            functions from a program of `tracelab.simulate` to the changed one.
        profile_by: what the causal profile lists: "finding", "line", "operator" or "kernel"; None
            for no profile.
    """

    comm_pattern: tuple[str, ...] = ()
    step_on: str = PROFILER_STEP
    step: int | None = None
    source: tuple[str, ...] = ()
    source_within: tuple[str, ...] = ()
    max_unpacked_bytes: int | None = None
    cache: bool = True
    processes: int = 1
    all_pairs: bool = False
    job: bool = False
    prices: bool = True
    fixes: tuple[str, ...] = ()
    edits: tuple[str | Callable[[Any], Any], ...] = ()
    profile_by: str | None = None

    def __post_init__(self) -> None:
        for name in ("comm_pattern", "source", "source_within", "fixes"):
            force_setattr(self, name, texts(name, getattr(self, name)))
        force_setattr(self, "edits", tuple(several("edits", self.edits, str | Callable)))
        require_types(
            step_on=(self.step_on, str),
            step=(self.step, Integral | None),
            processes=(self.processes, Integral),
            profile_by=(self.profile_by, str | None),
            **{name: (getattr(self, name), bool) for name in _SWITCHES},
        )

    def __repr__(self) -> str:
        values = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        changed = [name for name, default in values if getattr(self, name) != default]
        return f"Options({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"


_SWITCHES = ("cache", "all_pairs", "job", "prices")

_WORDS: Mapping[Any, str] = MappingProxyType(
    {
        Integral: "a whole number",
        Real: "a number",
        str: "a text",
        bool: "True or False",
        PathLike: "a path",
        NoneType: "None",
        Callable: "a function",
    }
)


def require_types(**arguments: tuple[object, Any]) -> None:
    """Refuse arguments of other types, each given with the types that it may have: a UsageError."""
    for name, (value, kinds) in arguments.items():
        members = get_args(kinds) if isinstance(kinds, UnionType) else (kinds,)
        is_number = isinstance(value, bool) and bool not in members
        if is_number or not isinstance(value, kinds):
            words = " or ".join(_WORDS.get(kind, kind.__name__) for kind in members)
            raise UsageError(f"`{name}` takes {words}, not {brief(value)}")


def several(name: str, value: object, kinds: Any) -> list[Any]:
    """Values of an argument that takes one or several of some types; a UsageError for others."""
    is_one = isinstance(value, str | bytes)
    values = list(value) if isinstance(value, Iterable) and not is_one else [value]
    for one in values:
        require_types(**{name: (one, kinds)})
    return values


def texts(name: str, value: object) -> tuple[str, ...]:
    """Several texts or paths, or one by itself, as texts; a UsageError for anything else."""
    return tuple(map(fspath, several(name, value, str | PathLike)))


def step_number(step: object) -> int | None:
    """The number of the only step that is requested, 3 or "3"; None for all of them, or "all"."""
    if step is None or step == "all":
        return None
    if isinstance(step, str | Integral) and not isinstance(step, bool):
        with suppress(ValueError):
            return int(step)
    raise UsageError(f"`step` takes a number or 'all', not {brief(step)}", option="step")


DEFAULTS = Options()
