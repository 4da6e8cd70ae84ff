"""Lines of calls: a trace names functions only, the program's source tells where in them.

The profiler gives the line at which a function was entered and, in order, what it called. The
source is read as text and parsed, never run. A wrong line is worse than none: wherever more than
one place fits, or the source is not the one that was recorded, there is no line.
"""

from __future__ import annotations

import ast
import re
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MODULE_CALL = "__call__"  # a call of an object: any call of the function may be the one
TRUTH = "__bool__"  # `if x`, `while x`, `not x`, `x and y` ...
NUMBER = "__float__"  # a number made of an object: `float(x)`, `int(x)`, `range(x)`, `y[x]` ...

_LARGEST_FILE = 5_000_000  # bytes
_OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.MatMult: "matmul",
}
_COMPREHENSIONS = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
# A call of a type leaves no event of its own, so any of these may have asked an object for its
# number; types of other names are written with a capital.
_MAKES_NUMBER = re.compile(
    r"^(?:_*[A-Z]\w*|u?int\d*|float\d*|complex\d*|range|slice|round|timedelta|bytes|bytearray)$"
)
_TRUE_OR_FALSE = {"isinstance", "issubclass", "hasattr", "callable", "len", "any", "all", "bool"}

_Position = tuple[int, int]  # line and column
_Path = tuple[tuple[str, int], ...]  # the ("loop" | "branch", number) around, outermost first


@dataclass(frozen=True, slots=True)
class _Spot:
    """One place that calls something; `end` is where it has been read, which orders calls."""

    name: str
    line: int | None
    end: _Position
    path: _Path
    is_call: bool


@dataclass(frozen=True, slots=True)
class _Resume:
    """A `yield` or `await`: the generator goes on from here; `floor` is what it can reach again."""

    line: int
    end: _Position
    path: _Path
    floor: _Position


@dataclass(slots=True)
class _Scope:
    """The body of one function, lambda, class, comprehension or module, without nested ones."""

    name: str
    first_lines: frozenset[int]
    depth: int  # of the path around it
    spots: list[_Spot] = field(default_factory=list)
    resumes: list[_Resume] = field(default_factory=list)
    # Line of each call to the first position that can still run once it runs.
    at_work: dict[int, _Position] = field(default_factory=dict)
    skips: bool = False  # has a `continue`


class SourceLines:
    """Looks for the lines of calls in source files; each file is parsed once.

    Args:
        folders: where the program's source is, beside the place that the trace names.
    """

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = tuple(folders)
        self._files: dict[str, tuple[Path, ...]] = {}
        self._scopes: dict[Path, tuple[_Scope, ...]] = {}
        self._lines: dict[tuple[str, str, int, str, int | None, int | None], int | None] = {}

    def line_of(
        self,
        file: str,
        function: str,
        first_line: int,
        called: str,
        ordinal: int | None = None,
        count: int | None = None,
    ) -> int | None:
        """The line of a call, or None where the source does not say it for certain.

        Args:
            file: the source file as the trace names it.
            function: name of the function that called.
            first_line: the line that the trace gives for it: of its beginning; of the `yield` from
                which a generator went on; or, of a function that ran already when recording began,
                the line at which it was.
            called: what was called; a "__name__" for what is written without a name.
            ordinal: which call of this name it is, from 0, in one activation of the function;
                None where that is not known.
            count: of how many in that activation.
        """
        key = (file, function, first_line, called, ordinal, count)
        if key not in self._lines:
            self._lines[key] = self._find(*key)
        return self._lines[key]

    def _find(
        self,
        file: str,
        function: str,
        first_line: int,
        called: str,
        ordinal: int | None,
        count: int | None,
    ) -> int | None:
        if file not in self._files:
            self._files[file] = tuple(_candidates(file, self._folders))
        for path in self._files[file]:
            if path not in self._scopes:
                self._scopes[path] = _read_scopes(path)
            entered = _entered(self._scopes[path], function, first_line)
            if entered is not None:
                return _choose(*entered, called, ordinal, count)
        return None


def _candidates(file: str, folders: Iterable[str]) -> Iterator[Path]:
    """The files that may be meant; a folder that the user names goes before the trace's word."""
    parts = [x for x in file.replace("\\", "/").split("/") if x not in ("", ".", "..")]
    for folder in folders:
        suffixes = (Path(folder, *parts[first:]) for first in range(len(parts)))
        longest = next(filter(_is_source, suffixes), None)
        if longest is not None:
            yield longest
    given = Path(file)
    if _is_source(given):
        yield given


def _is_source(path: Path) -> bool:
    # Only a regular file: reading a pipe or a device that a trace names might never end.
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE


def _read_scopes(path: Path) -> tuple[_Scope, ...]:
    """The scopes of a file; none if it cannot be read as Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's source, which is not ours
            tree = ast.parse(path.read_bytes())
        reader = _Reader()
        reader.visit(tree)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(reader.scopes)


def _entered(
    scopes: Iterable[_Scope], function: str, line: int
) -> tuple[_Scope, _Resume | _Position | None] | None:
    """The function that a trace means, and where it went on: None at its beginning."""
    named = [scope for scope in scopes if scope.name == function]
    begun = [scope for scope in named if line in scope.first_lines]
    resumed = [(scope, x) for scope in named for x in scope.resumes if x.line == line]
    at_work = [(scope, scope.at_work[line]) for scope in named if line in scope.at_work]
    if begun:
        # Two of one name on one line cannot be told apart. One that is all on one line may as well
        # have gone on there.
        alone = len(begun) == 1 and all(scope is begun[0] for scope, _ in resumed)
        return (begun[0], (0, 0) if resumed else None) if alone else None
    if resumed:
        return resumed[0] if len(resumed) == 1 else None
    return at_work[0] if len(at_work) == 1 else None


def _choose(
    scope: _Scope,
    went_on: _Resume | _Position | None,
    called: str,
    ordinal: int | None,
    count: int | None,
) -> int | None:
    """The line of a call in an activation of this scope."""
    spots = [x for x in scope.spots if (x.is_call if called == MODULE_CALL else x.name == called)]
    if went_on is not None:
        floor = went_on.floor if isinstance(went_on, _Resume) else went_on
        spots = [x for x in spots if x.end > floor]
    if len({x.line for x in spots}) == 1:
        loops = any(kind == "loop" for x in spots for kind, _ in x.path)
        # More calls than the source has places: some were made in a way that is not seen here.
        surplus = count is not None and count > len(spots) and not loops
        return None if surplus else spots[0].line
    if ordinal is None or count != len(spots) or isinstance(went_on, tuple):
        return None
    in_order = _in_order(scope, went_on, sorted(spots, key=lambda x: x.end))
    return in_order[ordinal].line if in_order is not None and ordinal < len(in_order) else None


def _in_order(scope: _Scope, went_on: _Resume | None, spots: list[_Spot]) -> list[_Spot] | None:
    """The places in the order in which one activation calls, if each is called exactly once."""
    if all(x.path == () for x in spots) and not scope.resumes:
        return spots
    # A generator runs from `yield` to `yield`: where its only one stands in the loop that holds
    # all the places, that is once around.
    if len(scope.resumes) != 1 or scope.skips:
        return None
    (around,) = scope.resumes
    if [kind for kind, _ in around.path] != ["loop"] or any(x.path != around.path for x in spots):
        return None
    after = [x for x in spots if x.end > around.end]
    if went_on is None:
        return spots if not after else None
    return after + [x for x in spots if x.end <= around.end]


class _Reader(ast.NodeVisitor):
    """Collects the scopes of a file."""

    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self._open: list[_Scope] = []  # a comprehension's calls are its own or its function's
        self._path: _Path = ()
        self._loops: list[_Position] = []  # where each loop around begins
        self._count = 0
        self._lost = False  # whether the lines are not to be trusted

    # Scopes.

    @contextmanager
    def _scope(
        self, name: str, first_lines: Iterable[int], *, shared: bool = False
    ) -> Iterator[None]:
        outer_open, outer_loops = self._open, self._loops
        scope = _Scope(name, frozenset(first_lines), len(self._path))
        self.scopes.append(scope)
        self._open = [*outer_open, scope] if shared else [scope]
        self._loops = outer_loops if shared else []
        yield
        self._open, self._loops = outer_open, outer_loops

    def visit_Module(self, node: ast.Module) -> None:
        with self._scope("<module>", [0, 1]):
            self._visit_all(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all(node.decorator_list)
        self._visit_defaults(node.args)
        with self._scope(node.name, [node.lineno, *(x.lineno for x in node.decorator_list[:1])]):
            self._visit_all(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        with self._scope(node.name, [node.lineno, *(x.lineno for x in node.decorator_list[:1])]):
            self._visit_all(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_defaults(node.args)
        with self._scope("<lambda>", [node.lineno]):
            self.visit(node.body)

    def _visit_defaults(self, arguments: ast.arguments) -> None:
        self._visit_all([*arguments.defaults, *filter(None, arguments.kw_defaults)])

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self.visit(node.generators[0].iter)  # the function around evaluates the first
        # Python 3.12 runs a list's within its function, older ones as a function of its own.
        shared = not isinstance(node, ast.GeneratorExp)
        with (
            self._scope(_COMPREHENSIONS[type(node)], [node.lineno], shared=shared),
            self._loop((node.lineno, node.col_offset)),
        ):
            for index, generator in enumerate(node.generators):
                if index:
                    self.visit(generator.iter)
                for test in generator.ifs:
                    self._visit_test(test)
            if isinstance(node, ast.DictComp):
                self._visit_all([node.key, node.value])
            else:
                self.visit(node.elt)
            if isinstance(node, ast.GeneratorExp):
                self._add_resume(node.elt)

    visit_ListComp = visit_SetComp = _visit_comprehension  # noqa: N815
    visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    # What runs more than once, or not always.

    @contextmanager
    def _inside(self, kind: str) -> Iterator[None]:
        self._count += 1
        outer, self._path = self._path, (*self._path, (kind, self._count))
        yield
        self._path = outer

    @contextmanager
    def _loop(self, begin: _Position) -> Iterator[None]:
        outer, self._loops = self._loops, [*self._loops, begin]
        with self._inside("loop"):
            yield
        self._loops = outer

    def _visit_branch(self, nodes: Iterable[ast.AST]) -> None:
        with self._inside("branch"):
            self._visit_all(nodes)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        with self._loop(_end(node.iter)):
            self._add_at_work(node.iter.lineno)
            if isinstance(node, ast.AsyncFor):
                self._add_resume(node.iter)
            self._visit_all([node.target, *node.body])
        self._visit_branch(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        with self._loop((node.lineno, node.col_offset)):
            self._visit_test(node.test)
            self._visit_all(node.body)
        self._visit_branch(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self._visit_test(node.test)
        self._visit_branch(node.body)
        self._visit_branch(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._visit_test(node.test)
        self._visit_branch([node.body])
        self._visit_branch([node.orelse])

    def visit_Assert(self, node: ast.Assert) -> None:
        with self._inside("branch"):  # `python -O` leaves it out
            self._visit_test(node.test)
            self._visit_all([node.msg] if node.msg else [])

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        for part in (node.body, node.handlers, node.orelse, node.finalbody):
            self._visit_branch(part)

    visit_TryStar = visit_Try  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._visit_all([node.type] if node.type else [])
        self._visit_branch(node.body)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            with self._inside("branch"):
                self.visit(case.pattern)
                if case.guard:
                    self._visit_test(case.guard)
                self._visit_all(case.body)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._visit_bool_op(node, is_test=False)

    def _visit_bool_op(self, node: ast.BoolOp, *, is_test: bool) -> None:
        first, *others = node.values
        self._visit_test(first)
        with self._inside("branch"):
            for index, value in enumerate(others, 2):
                # Of `a or b` as a value, the last is not asked whether it is true.
                if is_test or index < len(node.values):
                    self._visit_test(value)
                else:
                    self.visit(value)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.visit(node.left)
        self.visit(node.comparators[0])
        self._visit_branch(node.comparators[1:])
        if len(node.comparators) > 1:  # `a < b < c` asks whether a < b is true
            self._add_spot(TRUTH, node.lineno, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._visit_test(node.operand)
        else:
            self.visit(node.operand)

    def visit_Continue(self, _node: ast.Continue) -> None:
        for scope in self._open:
            scope.skips = True

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        # What a target calls is called after the value, though it stands before it.
        self._visit_branch(node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_all([node.value] if node.value else [])
        self._visit_branch([node.target])  # annotations of local names are not evaluated

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.target)
        self.visit(node.value)
        if isinstance(node.target, ast.Subscript) and not _is_constant(node.target.slice):
            self._add_spot("__getitem__", _line_of_index(node.target), node.target)
        if type(node.op) in _OPERATIONS:
            self._add_spot(f"__i{_OPERATIONS[type(node.op)]}__", node.lineno, node)
        if isinstance(node.op, ast.Mod):  # a text is filled in
            self._add_spot(NUMBER, node.lineno, node)

    # What calls.

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        # Of a chain over several lines, the line with the name.
        line = node.func.end_lineno or node.lineno
        name = _called_name(node)
        self._add_spot(name, line, node, is_call=True)
        self._add_at_work(node.lineno)
        self._add_at_work(line)
        if _MAKES_NUMBER.match(name):
            self._add_spot(NUMBER, line, node)
        if name == "bool":
            self._add_spot(TRUTH, line, node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        if _is_constant(node.slice):
            return  # it neither selects by a mask nor asks the index for its number
        self._add_spot(NUMBER, _line_of_index(node), node)
        kind = "__getitem__" if isinstance(node.ctx, ast.Load) else "__setitem__"
        self._add_spot(kind, _line_of_index(node), node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if type(node.op) in _OPERATIONS:
            self._add_spot(f"__{_OPERATIONS[type(node.op)]}__", node.lineno, node)
        if isinstance(node.op, ast.Mod):  # a text is filled in
            self._add_spot(NUMBER, node.lineno, node)

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom | ast.Await) -> None:
        self.generic_visit(node)
        self._add_resume(node)

    visit_YieldFrom = visit_Await = visit_Yield  # noqa: N815

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._add_at_work(node.lineno)
        if isinstance(node, ast.AsyncWith):
            self._add_resume(node.items[0].context_expr)
        self.generic_visit(node)

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # Before Python 3.12, the parser miscounts the lines within text of several lines.
        lost = sys.version_info < (3, 12) and node.end_lineno != node.lineno
        outer, self._lost = self._lost, self._lost or lost
        self.generic_visit(node)
        self._lost = outer

    def _visit_test(self, node: ast.expr) -> None:
        """An expression of which Python asks whether it is true."""
        if isinstance(node, ast.BoolOp):
            self._visit_bool_op(node, is_test=True)
            return
        self.visit(node)
        if not _is_plain_truth(node):
            self._add_spot(TRUTH, node.lineno, node)

    def _add_spot(
        self, name: str, line: int, node: ast.expr | ast.stmt, *, is_call: bool = False
    ) -> None:
        for scope in self._open:
            path = self._path[scope.depth :]
            scope.spots.append(_Spot(name, None if self._lost else line, _end(node), path, is_call))

    def _add_resume(self, node: ast.expr) -> None:
        for scope in self._open:
            path = self._path[scope.depth :]
            scope.resumes.append(_Resume(node.lineno, _end(node), path, self._floor(_end(node))))

    def _add_at_work(self, line: int) -> None:
        floor = self._floor((line, 0))
        for scope in self._open:
            scope.at_work[line] = min(floor, scope.at_work.get(line, floor))

    def _floor(self, position: _Position) -> _Position:
        """The first position that can run after this one: a loop begins again."""
        return self._loops[0] if self._loops else position


def _end(node: ast.expr | ast.stmt) -> _Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _called_name(node: ast.Call) -> str:
    """The last name of what is called; "" for the result of an expression."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _line_of_index(node: ast.Subscript) -> int:
    return node.value.end_lineno or node.lineno


def _is_constant(index: ast.expr) -> bool:
    """Whether an index is made of constants: ``[0]``, ``[:, -1]``, ``["name"]``."""
    if isinstance(index, ast.Slice):
        return all(_is_constant(x) for x in (index.lower, index.upper, index.step) if x)
    if isinstance(index, ast.Tuple):
        return all(_is_constant(x) for x in index.elts)
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.operand, ast.Constant)
    return isinstance(index, ast.Constant)


def _is_plain_truth(node: ast.expr) -> bool:
    """Whether an expression is true or false already, so that no object is asked."""
    if isinstance(node, ast.Compare):
        plain = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        return all(isinstance(x, plain) for x in node.ops)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _TRUE_OR_FALSE
    return isinstance(node, ast.Constant | ast.JoinedStr)
