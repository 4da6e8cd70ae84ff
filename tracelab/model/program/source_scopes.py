"""Calls of the functions of a source file, and their lines: parsed as text, never run."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from tracelab.model.frames import NUMBER, TRUTH

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
# A call of a type leaves no event: any of these may have asked an object for its number.
_MAKES_NUMBER = re.compile(
    r"^(?:_*[A-Z]\w*|u?int\d*|float\d*|complex\d*|range|slice|round|timedelta|bytes|bytearray)$"
)
# Of objects that make others of what they are given, one by one, or of all of it.
_MAKES_ITERATOR = re.compile(r"^(?:enumerate|filter|iter|map|reversed|zip)$")
_CONSUMES = re.compile(
    r"^(?:all|any|dict|extend|frozenset|join|list|max|min|next|set|sorted|sum|tuple|update)$"
)
ITERATE, NEXT = "__iter__", "__next__"
# Kineto writes every backslash as a slash: what JSON escapes would end the text, or change it.
_PLAIN = "".join(c for c in map(chr, range(32, 127)) if c not in '%"\\')
_TRUE_OR_FALSE = {"isinstance", "issubclass", "hasattr", "callable", "len", "any", "all", "bool"}

Position = tuple[int, int]
BlockPath = tuple[tuple[str, int], ...]  # the ("loop" | "branch", number) around, outermost first


class Spot(msgspec.Struct, array_like=True, frozen=True):
    """A spot that calls something."""

    name: str
    line: int | None
    end_line: int
    end_column: int
    path: BlockPath
    is_call: bool

    @property
    def end(self) -> Position:
        """Position at which it has been read, which orders calls."""
        return self.end_line, self.end_column


class Resume(msgspec.Struct, array_like=True, frozen=True):
    """A `yield` or `await`: the generator goes on from here; `floor` is what it can reach again."""

    line: int
    end: Position
    path: BlockPath
    floor: Position


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """The body of one function, lambda, class, comprehension or module, without nested ones.

    Attributes:
        name: as the trace names it: "step", "<lambda>", "<module>".
        first_lines: the lines at which a trace may say that it begins.
        spots: the calls, in the order of reading.
        resumes: where it goes on after it has been left.
        reachable: line of each call, and the first position that can still run once it runs.
    """

    name: str
    first_lines: tuple[int, ...]
    spots: tuple[Spot, ...]
    resumes: tuple[Resume, ...]
    reachable: tuple[tuple[int, Position], ...]
    skips: bool


def read_scopes(path: Path) -> tuple[Scope, ...]:
    """The scopes of a file; none if it cannot be read as Python."""
    try:
        return find_scopes(path.read_bytes())
    except OSError:
        return ()


def find_scopes(source: bytes | str) -> tuple[Scope, ...]:
    """The scopes of a source; none if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's source, which is not ours
            tree = ast.parse(source)
        reader = _Reader()
        reader.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(scope.complete() for scope in reader.scopes)


@dataclass(slots=True)
class _OpenScope:
    name: str
    first_lines: frozenset[int]
    depth: int  # of the path around it
    spots: list[Spot] = field(default_factory=list)
    resumes: list[Resume] = field(default_factory=list)
    reachable_from: dict[int, Position] = field(default_factory=dict)
    skips: bool = False

    def complete(self) -> Scope:
        return Scope(
            name=self.name,
            first_lines=tuple(sorted(self.first_lines)),
            spots=tuple(self.spots),
            resumes=tuple(self.resumes),
            reachable=tuple(self.reachable_from.items()),
            skips=self.skips,
        )


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.scopes: list[_OpenScope] = []
        self._open: list[_OpenScope] = []  # a comprehension's calls are its own or its function's
        self._path: BlockPath = ()
        self._loops: list[Position] = []  # where each loop around begins
        self._count = 0
        self._lines_are_wrong = False

    @contextmanager
    def _scope(
        self, name: str, first_lines: Iterable[int], *, shared: bool = False
    ) -> Iterator[None]:
        outer_open, outer_loops = self._open, self._loops
        scope = _OpenScope(name, frozenset(first_lines), len(self._path))
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
        self._visit_definition(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._visit_definition(node)

    def _visit_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        decorator_lines = [decorator.lineno for decorator in node.decorator_list[:1]]
        with self._scope(node.name, [node.lineno, *decorator_lines]):
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
        first = node.generators[0].iter
        self.visit(first)  # the function around evaluates the first
        self._add_spot(ITERATE, first.lineno, first)
        # Python 3.12 runs a list's within its function, older ones as a function of its own.
        shared = not isinstance(node, ast.GeneratorExp)
        with (
            self._scope(_COMPREHENSIONS[type(node)], [node.lineno], shared=shared),
            self._loop((node.lineno, node.col_offset)),
        ):
            for index, generator in enumerate(node.generators):
                if index:
                    self.visit(generator.iter)
                    self._add_spot(ITERATE, generator.iter.lineno, generator.iter)
                self._add_next(generator.iter)
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

    @contextmanager
    def _inside(self, kind: str) -> Iterator[None]:
        self._count += 1
        outer, self._path = self._path, (*self._path, (kind, self._count))
        yield
        self._path = outer

    @contextmanager
    def _loop(self, begin: Position) -> Iterator[None]:
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
        if isinstance(node, ast.For):
            self._add_spot(ITERATE, node.iter.lineno, node.iter)
        with self._loop(_end(node.iter)):
            self._add_reachable(node.iter.lineno)
            if isinstance(node, ast.AsyncFor):
                self._add_resume(node.iter)
            else:
                self._add_next(node.iter)
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

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        # Of a chain over several lines, the line with the name.
        line = node.func.end_lineno or node.lineno
        name = _called_name(node)
        self._add_spot(name, line, node, is_call=True)
        self._add_reachable(node.lineno)
        self._add_reachable(line)
        if _MAKES_NUMBER.match(name):
            self._add_spot(NUMBER, line, node)
        if name == "bool":
            self._add_spot(TRUTH, line, node)
        if _MAKES_ITERATOR.match(name):
            self._add_spot(ITERATE, line, node)
        if _CONSUMES.match(name):
            self._add_all(node, line)

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

    def visit_Starred(self, node: ast.Starred) -> None:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            self._add_all(node, node.lineno)

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> None:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Store):  # what is assigned is unpacked
            self._add_all(node, node.lineno)

    visit_List = visit_Tuple  # noqa: N815

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom | ast.Await) -> None:
        self.generic_visit(node)
        if isinstance(node, ast.YieldFrom):
            self._add_all(node, node.lineno)
        self._add_resume(node)

    visit_YieldFrom = visit_Await = visit_Yield  # noqa: N815

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._add_reachable(node.lineno)
        if isinstance(node, ast.AsyncWith):
            self._add_resume(node.items[0].context_expr)
            self.generic_visit(node)
            return
        for item in node.items:
            self.visit(item.context_expr)
            self._add_spot("__enter__", item.context_expr.lineno, item.context_expr)
            self._visit_all([item.optional_vars] if item.optional_vars else [])
        self._visit_all(node.body)
        for item in reversed(node.items):
            self._add_spot("__exit__", item.context_expr.lineno, node)

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # Before Python 3.12, the parser miscounts the lines within text of several lines.
        is_miscounted = sys.version_info < (3, 12) and node.end_lineno != node.lineno
        outer = self._lines_are_wrong
        self._lines_are_wrong = outer or is_miscounted
        self.generic_visit(node)
        self._lines_are_wrong = outer

    def _visit_test(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            self._visit_bool_op(node, is_test=True)
            return
        self.visit(node)
        if not _is_plain_truth(node):
            self._add_spot(TRUTH, node.lineno, node)

    def _add_spot(
        self, name: str, line: int, node: ast.expr | ast.stmt, *, is_call: bool = False
    ) -> None:
        self._add_spot_at(name, line, _end(node), is_call=is_call)

    def _add_spot_at(self, name: str, line: int, end: Position, *, is_call: bool = False) -> None:
        for scope in self._open:
            path = self._path[scope.depth :]
            known_line = None if self._lines_are_wrong else line
            scope.spots.append(Spot(name, known_line, *end, path, is_call))

    def _add_next(self, node: ast.expr) -> None:
        """Add the spots that a loop asks for the next item; it does not evaluate them again."""
        line, column = _end(node)
        self._add_spot_at(NEXT, node.lineno, (line, column + 1))

    def _add_all(self, node: ast.expr, line: int) -> None:
        """Add the spot that takes all items of an object, one by one."""
        self._add_spot(ITERATE, line, node)
        self._add_spot(NEXT, line, node)

    def _add_resume(self, node: ast.expr) -> None:
        for scope in self._open:
            path = self._path[scope.depth :]
            scope.resumes.append(Resume(node.lineno, _end(node), path, self._floor(_end(node))))

    def _add_reachable(self, line: int) -> None:
        floor = self._floor((line, 0))
        for scope in self._open:
            scope.reachable_from[line] = min(floor, scope.reachable_from.get(line, floor))

    def _floor(self, position: Position) -> Position:
        """The first position that can run after this one: a loop begins again."""
        return self._loops[0] if self._loops else position


def _end(node: ast.expr | ast.stmt) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _line_of_index(node: ast.Subscript) -> int:
    return node.value.end_lineno or node.lineno


def _is_constant(index: ast.expr) -> bool:
    """Return True if an index is made of constants: ``[0]``, ``[:, -1]``, ``["name"]``."""
    if isinstance(index, ast.Slice):
        return all(_is_constant(bound) for bound in (index.lower, index.upper, index.step) if bound)
    if isinstance(index, ast.Tuple):
        return all(_is_constant(element) for element in index.elts)
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.operand, ast.Constant)
    return isinstance(index, ast.Constant)


def _is_plain_truth(node: ast.expr) -> bool:
    """Return True if an expression is true or false already, so that no object is asked."""
    if isinstance(node, ast.Compare):
        plain = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        return all(isinstance(operator, plain) for operator in node.ops)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _TRUE_OR_FALSE
    return isinstance(node, ast.Constant | ast.JoinedStr)


def text_as_stored(text: str) -> str:
    """A line of source without anything that JSON escapes; `unquote` gives it back."""
    return quote(text, safe=_PLAIN)


def scopes_as_lists(scopes: tuple[Scope, ...]) -> Any:
    """Scopes as nested lists of their fields, for JSON; those without a call are left out."""
    return msgspec.to_builtins([scope for scope in scopes if scope.spots])


def scopes_from_lists(lists: object) -> tuple[Scope, ...]:
    """The scopes that `scopes_as_lists` made lists of; none where something else did."""
    try:
        return msgspec.convert(lists, tuple[Scope, ...])
    except msgspec.ValidationError:
        return ()
