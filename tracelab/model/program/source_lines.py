"""Lines of calls: a trace names functions only, the program's source tells where in them."""

from __future__ import annotations

import builtins
import os
import re
import stat
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from tracelab.base.names import is_share, is_within
from tracelab.base.safe_text import clean

if TYPE_CHECKING:
    from tracelab.model.program.source_scopes import Position, Resume, Scope, Spot

MODULE = "<module>"  # the code of a file outside any function
MODULE_CALL = "__call__"  # a call of an object: any call of the function may be the one
_MAKES_OBJECT = "__init__"  # which the source calls by the name of the class
_CLASS_NAME = re.compile(r"^_*[A-Z]\w*[a-z]")
_SMALL_CLASS = re.compile(
    r"^(?:autocast|device_of|enable_grad|inference_mode|no_grad|record_function|set_grad_enabled"
    r"|stream)$"
)
# Methods of modules and tensors, and classes of PyTorch written small: no call of an object.
_NO_OBJECT = re.compile(
    r"^(?:append|autocast|buffers|children|clone|cpu|cuda|detach|device|enable_grad|eval|extend"
    r"|inference_mode|is_available|item|items|keys|load_state_dict|manual_seed|modules"
    r"|named_(?:buffers|modules|parameters)|no_grad|numpy|parameters|record_function|requires_grad_"
    r"|set_grad_enabled|state_dict|step|synchronize|tolist|train|update|values|zero_grad)$"
)

_MAX_FILE_BYTES = 5_000_000
_MAX_QUOTED_LETTERS = 100


class _Source(NamedTuple):
    """A source that a file of the trace may be; `path` is None of the one that was recorded."""

    scopes: tuple[Scope, ...]
    path: Path | None


class SourceLines:
    """Looks for the lines of calls in source files; each file is parsed once.

    Args:
        folders: where the program's source is, beside the file that the trace names.
        recorded: source file to its scopes, as of `scopes_as_lists`; they go before any file.
        texts: source file to line, in digits, to its text, as of `text_as_stored`.
        within: folders outside of which no file is read; None for no limit.
    """

    def __init__(
        self,
        folders: Sequence[str] = (),
        recorded: Mapping[str, Any] | None = None,
        texts: Mapping[str, Any] | None = None,
        within: Sequence[str] | None = None,
    ) -> None:
        self._folders = tuple(folders)
        self._within = within
        self._recorded = recorded or {}
        self._texts = texts or {}
        self._files: dict[str, tuple[_Source, ...]] = {}
        self._scopes: dict[Path, tuple[Scope, ...]] = {}
        self._rows = cache(read_rows)
        self._lines: dict[tuple[Any, ...], int | None] = {}

    def line_of(
        self,
        file: str,
        function: str,
        first_line: int,
        called: str,
        ordinal: int | None = None,
        count: int | None = None,
        others: frozenset[str] = frozenset(),
    ) -> int | None:
        """The line of a call, or None where the source does not say it for certain.

        Args:
            file: the source file as the trace names it.
            function: name of the function that called.
            first_line: the line that the trace gives for it: of its beginning, of the `yield` from
                which it went on, or at which it was when recording began.
            called: its name; a "__name__" for a call that is written without one.
            ordinal: which call of this name it is, from 0, in one activation.
            count: of how many in that activation.
            others: the names of what the function calls besides objects.
        """
        key = (file, function, first_line, called, ordinal, count, others)
        if key not in self._lines:
            found = self._scope_of(file, function, first_line)
            self._lines[key] = found and _choose(*found[1:], _fits(called, others), ordinal, count)
        return self._lines[key]

    def lines_of(
        self,
        file: str,
        function: str,
        first_line: int,
        called: str,
        others: frozenset[str] = frozenset(),
    ) -> tuple[int, ...]:
        """The lines of which a call is one, ascending; empty where they are not known."""
        found = self._scope_of(file, function, first_line)
        if found is None:
            return ()
        _, scope, resumed = found
        lines = {spot.line for spot in _reachable(scope, resumed, _fits(called, others))}
        return () if None in lines else tuple(sorted(filter(None, lines)))

    def entry_of(self, file: str, function: str, first_line: int) -> int | None:
        """The line of a function's ``def``, None of a module, or where there is no source of it."""
        found = self._scope_of(file, function, first_line)
        return max(found[1].first_lines, default=None) if found and function != MODULE else None

    def text_of(self, file: str, function: str, first_line: int, line: int) -> str | None:
        """The text of a line that `line_of` gave; None where it may not be what ran."""
        found = self._scope_of(file, function, first_line)
        if found is None:
            return None
        source, scope, _ = found
        if source.path is not None:
            return _quoted(self._rows(source.path), line)
        name = _recorded_name(file, self._texts)
        texts = self._texts[name] if name is not None else None
        text = texts.get(str(line)) if isinstance(texts, Mapping) else None
        if isinstance(text, str):
            return quoted(unquote(text)) or None
        for scopes, path in self._sources(file):
            today = None if path is None else _entered(scopes, function, first_line)
            if path is not None and today is not None and _is_same(today[0], scope):
                return _quoted(self._rows(path), line)
        return None

    def _scope_of(
        self, file: str, function: str, first_line: int
    ) -> tuple[_Source, Scope, Resume | Position | None] | None:
        for source in self._sources(file):
            entered = _entered(source.scopes, function, first_line)
            if entered is not None:
                return source, *entered
        return None

    def has_source(self, file: str) -> bool:
        """Return True if any source was found for a file that the trace names."""
        return len(self._sources(file)) > 0

    def _sources(self, file: str) -> tuple[_Source, ...]:
        if file not in self._files:
            paths = dict.fromkeys(_candidates(file, self._folders))
            allowed = (x for x in paths if self._within is None or is_within(x, self._within))
            read = (_Source(self._read(path), path) for path in allowed)
            self._files[file] = (*self._recorded_source(file), *read)
        return self._files[file]

    def _recorded_source(self, file: str) -> Iterator[_Source]:
        name = _recorded_name(file, self._recorded)
        if name is not None:
            from tracelab.model.program.source_scopes import scopes_from_lists

            yield _Source(scopes_from_lists(self._recorded[name]), None)

    def _read(self, path: Path) -> tuple[Scope, ...]:
        if path not in self._scopes:
            # The parser takes a while to import.
            from tracelab.model.program.source_scopes import read_scopes

            self._scopes[path] = read_scopes(path)
        return self._scopes[path]


def readable_folders(named: Iterable[str]) -> tuple[str, ...]:
    """The folders whose source is read by default: the named ones, and the current if not all."""
    current = Path.cwd()
    everywhere = current == Path(current.anchor)
    return tuple(map(os.path.realpath, named if everywhere else (*named, str(current))))


def read_rows(path: Path) -> dict[int, str]:
    """The lines of a source file by their numbers, as Python counts; none if it cannot be read."""
    try:
        with tokenize.open(path) as stream:
            return dict(enumerate(stream, 1))
    except (OSError, SyntaxError, ValueError):
        return {}


def _is_same(today: Scope, recorded: Scope) -> bool:
    """Return True if the source of today has a function as it was recorded."""
    # Older recordings lack some of what is called without a name.
    names = {spot.name for spot in recorded.spots}
    spots = tuple(x for x in today.spots if x.name in names or not x.name.startswith("__"))
    is_alike = dict(today.reachable) == dict(recorded.reachable)
    return is_alike and replace(today, spots=spots, reachable=recorded.reachable) == recorded


def quoted(text: str) -> str:
    """A line of source as it is quoted: without indentation, cut where it is long."""
    text = clean(text.strip()[: 4 * _MAX_QUOTED_LETTERS]).strip()
    if len(text) <= _MAX_QUOTED_LETTERS:
        return text
    start = text[:_MAX_QUOTED_LETTERS]
    return f"{start.rpartition(' ')[0] or start[:-1]}…"


def _quoted(rows: Mapping[int, str], line: int) -> str | None:
    return quoted(rows[line]) or None if line in rows else None


def _recorded_name(file: str, recorded: Iterable[str]) -> str | None:
    """The recorded file that a trace means: of that name, or the only one that ends alike."""
    parts = _parts(file)
    alike = [name for name in recorded if _end_alike(parts, _parts(name))]
    exact = [name for name in alike if _parts(name) == parts]
    chosen = exact or alike
    return chosen[0] if len(chosen) == 1 else None


def _end_alike(a: list[str], b: list[str]) -> bool:
    length = min(len(a), len(b))
    return length > 0 and a[-length:] == b[-length:]


def _parts(file: str) -> list[str]:
    return [part for part in file.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def _candidates(file: str, folders: Iterable[str]) -> Iterator[Path]:
    """The files that may be meant; a folder that the user names goes before the trace's word."""
    parts = _parts(file)
    for folder in folders:
        suffixes = (Path(folder, *parts[first:]) for first in range(len(parts)))
        longest = next(filter(_is_source, suffixes), None)
        if longest is not None:
            yield longest
    if not is_share(file) and _is_source(Path(file)):
        yield Path(file)


def _is_source(path: Path) -> bool:
    # Reading a pipe or a device that a trace names might never end; files of /proc have no size.
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and 0 < status.st_size <= _MAX_FILE_BYTES


def _entered(
    scopes: Iterable[Scope], function: str, line: int
) -> tuple[Scope, Resume | Position | None] | None:
    """The function that a trace means, and where it resumed: None at its beginning."""
    named = [scope for scope in scopes if scope.name == function]
    entered = [scope for scope in named if line in scope.first_lines]
    resumed = [(scope, r) for scope in named for r in scope.resumes if r.line == line]
    running = [(scope, floor) for scope in named for at, floor in scope.reachable if at == line]
    if entered:
        # Two of one name on one line cannot be distinguished. One that is all on one line may as
        # well have resumed there.
        is_alone = len(entered) == 1 and all(scope is entered[0] for scope, _ in resumed)
        return (entered[0], (0, 0) if resumed else None) if is_alone else None
    if resumed:
        return resumed[0] if len(resumed) == 1 else None
    return running[0] if len(running) == 1 else None


def _fits(called: str, others: frozenset[str]) -> Callable[[Spot], bool]:
    if called == MODULE_CALL:
        return lambda spot: (
            spot.is_call
            and not (
                spot.name in others
                or hasattr(builtins, spot.name)
                or _CLASS_NAME.match(spot.name)
                or _NO_OBJECT.match(spot.name)
            )
        )
    if called == _MAKES_OBJECT:
        return lambda spot: (
            spot.name == called
            or (
                spot.is_call and bool(_CLASS_NAME.match(spot.name) or _SMALL_CLASS.match(spot.name))
            )
        )
    return lambda spot: spot.name == called


def _reachable(
    scope: Scope, resumed: Resume | Position | None, fits: Callable[[Spot], bool]
) -> list[Spot]:
    spots = list(filter(fits, scope.spots))
    if resumed is None:
        return spots
    floor = resumed if isinstance(resumed, tuple) else resumed.floor
    return [spot for spot in spots if spot.end > floor]


def _choose(
    scope: Scope,
    resumed: Resume | Position | None,
    fits: Callable[[Spot], bool],
    ordinal: int | None,
    count: int | None,
) -> int | None:
    spots = _reachable(scope, resumed, fits)
    if len({spot.line for spot in spots}) == 1:
        loops = any(kind == "loop" for spot in spots for kind, _ in spot.path)
        # More calls than the source has spots: some were made in a way that is not seen here.
        surplus = count is not None and count > len(spots) and not loops
        return None if surplus else spots[0].line
    if ordinal is None or count != len(spots) or isinstance(resumed, tuple):
        return None
    in_order = _sort_spots(scope, resumed, sorted(spots, key=lambda spot: spot.end))
    return in_order[ordinal].line if in_order is not None and ordinal < len(in_order) else None


def _sort_spots(scope: Scope, resumed: Resume | None, spots: list[Spot]) -> list[Spot] | None:
    """The spots in the order in which one activation calls, if each is called exactly once."""
    if all(spot.path == () for spot in spots) and not scope.resumes:
        return spots
    # A generator runs from `yield` to `yield`: once around a loop that holds its only one and all
    # the spots.
    if len(scope.resumes) != 1 or scope.skips:
        return None
    (resume,) = scope.resumes
    if [kind for kind, _ in resume.path] != ["loop"]:
        return None
    if any(spot.path != resume.path for spot in spots):
        return None
    after = [spot for spot in spots if spot.end > resume.end]
    if resumed is None:
        return spots if not after else None
    return after + [spot for spot in spots if spot.end <= resume.end]
