import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

import tracelab
from tracelab.model.program.source_lines import SourceLines, quoted
from tracelab.model.program.source_scopes import read_scopes, scopes_as_lists, scopes_from_lists

PACKAGE = Path(tracelab.__file__).parent


@pytest.fixture
def line_found(tmp_path):
    """Looks a call up in a source; returns the text of its line.

    The function was entered, or went on, in the first line that holds the text `at`.
    """

    def find(source, called, *, at="def f", function="f", ordinal=None, count=None):
        text = textwrap.dedent(source).strip("\n")
        file = tmp_path / "train.py"
        file.write_text(text)
        rows = text.splitlines()
        first = next(i for i, row in enumerate(rows, 1) if at in row)
        line = SourceLines().line_of(str(file), function, first, called, ordinal, count)
        return None if line is None else rows[line - 1].strip()

    return find


# One spot.


def test_only_call_of_a_name(line_found):
    assert line_found("def f(x):\n    x.cpu()\n    x.item()\n    item = 1", "item") == "x.item()"


def test_plain_name(line_found):
    assert line_found("def f(x):\n    empty_cache()", "empty_cache") == "empty_cache()"


def test_call_that_the_source_does_not_have(line_found):
    assert line_found("def f(x):\n    x.cpu()", "item") is None


def test_only_spot_in_a_loop_or_a_branch_is_still_the_spot(line_found):
    source = "def f(x):\n    for y in x:\n        if y is None:\n            y.item()"

    assert line_found(source, "item", ordinal=3, count=7) == "y.item()"


def test_more_calls_than_the_spots_can_make_were_made_in_an_unseen_way(line_found):
    source = "def f(x):\n    x.item()\n    g = x.item\n    g()"

    assert line_found(source, "item", ordinal=0, count=1) == "x.item()"
    assert line_found(source, "item", ordinal=0, count=2) is None


def test_calls_of_nested_functions_and_classes_are_theirs(line_found):
    source = """
        def f(x):
            def g(y=x.item()):
                y.item()
            class A:
                x.item()
            h = lambda: x.item()
            k = (y.item() for y in x)
    """

    assert line_found(source, "item") == "def g(y=x.item()):"
    assert line_found(source, "item", function="g", at="def g") == "y.item()"
    assert line_found(source, "item", function="A", at="class A") == "x.item()"
    assert line_found(source, "item", function="<lambda>", at="lambda") == "h = lambda: x.item()"
    assert line_found(source, "item", function="<genexpr>", at="k =") == "k = (y.item() for y in x)"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("[y.item() for y in x]", "<listcomp>"),
        ("{y.item() for y in x}", "<setcomp>"),
        ("{y: y.item() for y in x}", "<dictcomp>"),
    ],
)
def test_comprehension_is_a_function_of_its_own_or_not_by_python_version(line_found, kind, name):
    assert line_found(f"def f(x):\n    {kind}", "item") == kind
    assert line_found(f"def f(x):\n    {kind}", "item", function=name, at=kind) == kind


def test_dictionary_comprehension_with_a_condition(line_found):
    source = "def f(x):\n    {\n    y: y.item()\n    for z in x\n    for y in z if y.b\n    }"

    assert line_found(source, "item") == "y: y.item()"
    assert line_found(source, "__bool__") == "for y in z if y.b"


def test_module(line_found):
    assert line_found("import a\na.item()", "item", function="<module>", at="import") == "a.item()"


def test_of_a_chain_over_several_lines_the_one_with_the_name(line_found):
    source = "def f(x):\n    y = (\n        x\n        .cpu()\n        .item()\n    )"

    assert line_found(source, "item") == ".item()"
    assert line_found(source, "cpu") == ".cpu()"


def test_decorated_function_begins_at_its_decorator_or_its_def(line_found):
    source = "@a\n@b\ndef f(x):\n    x.item()"

    assert line_found(source, "item", at="@a") == "x.item()"
    assert line_found(source, "item", at="def f") == "x.item()"
    assert line_found(source, "item", at="@b") is None


# Several spots.


def test_places_on_one_line_are_that_line(line_found):
    source = "def f(x):\n    x.to(1), x.to(2)"

    assert line_found(source, "to") == "x.to(1), x.to(2)"


def test_each_spot_called_once_is_found_by_its_number(line_found):
    source = "def f(x):\n    a = x.to(1)\n    with a:\n        b = x.to(2)"

    assert line_found(source, "to", ordinal=0, count=2) == "a = x.to(1)"
    assert line_found(source, "to", ordinal=1, count=2) == "b = x.to(2)"
    assert line_found(source, "to", ordinal=1, count=3) is None
    assert line_found(source, "to") is None


def test_inner_calls_come_before_outer_ones(line_found):
    source = "def f(x):\n    x.to(\n        x.to(2).y\n    )"

    assert line_found(source, "to", ordinal=0, count=2) == "x.to(2).y"
    assert line_found(source, "to", ordinal=1, count=2) == "x.to("


@pytest.mark.parametrize(
    "statement",
    [
        "for y in x:\n        y.to(1)",
        "while x.to(1):\n        pass",
        "if x:\n        x.to(1)",
        "y = x and \\\n        x.to(1)",
        "y = x if x else \\\n        x.to(1)",
        "y = 0 < x < \\\n        x.to(1)",
        "assert x, \\\n        x.to(1)",
        "try:\n        x.to(1)\n    except A:\n        pass",
        "try:\n        pass\n    except x.to(1):\n        pass",
        "match x:\n        case 1:\n            x.to(1)",
        "match x:\n        case 1 if x.to(1):\n            pass",
        "x[x.to(1)] = 3",
        "x.to(1).y: int = 3",
        "[y.to(1) for y in x]",
    ],
)
def test_order_is_unknown_where_a_spot_is_called_more_or_less_than_once(line_found, statement):
    source = f"def f(x):\n    {statement}\n    x.to(2)"

    assert line_found(source, "to", ordinal=0, count=2) is None
    assert line_found(source, "to", ordinal=1, count=2) is None


# Functions that go on: generators, and what ran already when recording began.

GENERATOR = """
    def f(source):
        model = source.to(0)
        for x in source.to(5):
            a = x.to(1)
            b = x.to(2)
            yield
"""


def test_generator_that_goes_on_at_its_yield_goes_once_around_the_loop(line_found):
    assert line_found(GENERATOR, "to", at="yield", ordinal=0, count=2) == "a = x.to(1)"
    assert line_found(GENERATOR, "to", at="yield", ordinal=1, count=2) == "b = x.to(2)"
    assert line_found(GENERATOR, "to", at="yield", ordinal=1, count=3) is None


def test_generator_at_its_beginning_calls_what_stands_before_the_loop_as_well(line_found):
    assert line_found(GENERATOR, "to", at="def f", ordinal=2, count=4) is None


def test_generator_whose_places_are_all_in_the_loop_may_begin_there(line_found):
    source = "def f(x):\n    while 1:\n        a = x.to(1)\n        b = x.to(2)\n        yield"

    assert line_found(source, "to", ordinal=1, count=2) == "b = x.to(2)"


def test_yield_in_the_middle_of_the_loop_begins_with_what_stands_after_it(line_found):
    source = "def f(x):\n    while 1:\n        a = x.to(1)\n        yield\n        b = x.to(2)"

    assert line_found(source, "to", at="yield", ordinal=0, count=2) == "b = x.to(2)"
    assert line_found(source, "to", at="yield", ordinal=1, count=2) == "a = x.to(1)"
    assert line_found(source, "to", at="def f", ordinal=0, count=2) is None


@pytest.mark.parametrize(
    "more", ["continue", "yield 2", "await x", "while x: pass\n            else: x.to(3)"]
)
def test_generator_with_another_way_around_its_loop(line_found, more):
    source = f"""
        def f(x):
            while 1:
                a = x.to(1)
                b = x.to(2)
                if x:
                    {more}
                yield 1
    """

    assert line_found(source, "to", at="yield 1", ordinal=1, count=2) is None


def test_generator_without_a_loop_does_not_return_to_what_it_has_left(line_found):
    source = "def f(x):\n    a = x.to(1)\n    yield\n    b = x.to(2)"

    assert line_found(source, "to", at="yield") == "b = x.to(2)"


def test_two_yields_on_one_line_cannot_be_distinguished(line_found):
    source = "def f(x):\n    yield (yield)\n    x.to(2)"

    assert line_found(source, "to", at="yield") is None


def test_coroutine_goes_on_at_what_it_awaits(line_found):
    source = """
        async def f(x):
            x.to(0)
            async with x as y:
                pass
            async for y in x:
                await y
                y.to(1)
    """

    assert line_found(source, "to", at="await y") == "y.to(1)"
    assert line_found(source, "to", at="async for") == "y.to(1)"
    assert line_found(source, "to", at="async with") == "y.to(1)"


def test_function_at_work_does_not_return_to_what_stands_before_its_loop(line_found):
    source = """
        def f(x):
            model.to(0)
            while x:
                x.to(1)
                profiler.step()
    """

    assert line_found(source, "to", at="step()") == "x.to(1)"
    assert line_found(source, "to") is None


def test_function_at_work_at_a_with_statement(line_found):
    source = """
        def f(x):
            model.to(0)
            with profiler:
                for y in x.to(1):
                    y.item()
    """

    assert line_found(source, "to", at="with") == "for y in x.to(1):"
    assert line_found(source, "item", at="for y") == "y.item()"
    assert line_found(source, "to", at="for y") == "for y in x.to(1):"


def test_function_at_work_may_have_made_some_of_its_calls_unseen(line_found):
    source = "def f(x):\n    a = x.to(1)\n    run()\n    b = x.to(2)\n    c = x.to(3)"

    assert line_found(source, "to", at="run", ordinal=0, count=2) is None


def test_source_that_is_not_the_recorded_one(line_found):
    source = "x = 1\ndef f(x):\n    y = 2\n    x.item()"

    assert line_found(source, "item", at="x = 1") is None
    assert line_found(source, "item", at="y = 2") is None
    assert line_found(source, "item", function="g") is None


def test_two_functions_of_one_name_on_one_line(line_found):
    source = "f = (lambda: a.item()), (lambda: b.cpu())"

    assert line_found(source, "item", function="<lambda>", at="lambda") is None


# What is written without a name.


@pytest.mark.parametrize(
    "statement",
    [
        "if x < 1: y",
        "while x: y",
        "assert x",
        "y = not x",
        "y = x or z",
        "y = z is None or (x and z)",
        "y = 1 if x else 2",
        "y = 0 < x < 1",
        "y = bool(x)",
        "if isinstance(x, A) and x: y",
    ],
)
def test_truth(line_found, statement):
    assert line_found(f"def f(x):\n    {statement}", "__bool__") == statement


@pytest.mark.parametrize(
    "statement",
    [
        "if x is None: y",
        "if x in y: z",
        "while True: y",
        "y = 0 < x",
        "if len(x): y",
        "if isinstance(x, y): z",
        "if issubclass(x, y): z",
        "if hasattr(x, 'y'): z",
        "if callable(x): y",
        "if any(x): y",
        "if all(x): y",
        "if not 1: y",
    ],
)
def test_what_is_true_or_false_already(line_found, statement):
    assert line_found(f"def f(x):\n    {statement}", "__bool__") is None


def test_a_condition_that_asks_by_itself_asks_once(line_found):
    source = "def f(x):\n    if bool(x): y"

    assert line_found(source, "__bool__", ordinal=0, count=1) == "if bool(x): y"
    assert line_found(source, "__bool__", ordinal=0, count=2) is None


def test_match_asks_for_the_truth_of_its_guard(line_found):
    source = "def f(x):\n    match x:\n        case 1 if x.y:\n            pass"

    assert line_found(source, "__bool__") == "case 1 if x.y:"


def test_two_truths_on_two_lines(line_found):
    assert line_found("def f(x):\n    if x: y\n    if y: x", "__bool__") is None


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("y = x[mask]", "__getitem__"),
        ("y = x[0][..., mask, 1:-1]['name']", "__getitem__"),
        ("x[mask] = 0", "__setitem__"),
        ("y = x + z", "__add__"),
        ("y = x - z", "__sub__"),
        ("y = x * z", "__mul__"),
        ("y = x / z", "__truediv__"),
        ("y = x @ z", "__matmul__"),
        ("x += z", "__iadd__"),
        ("x -= z", "__isub__"),
        ("x *= z", "__imul__"),
        ("x /= z", "__itruediv__"),
        ("y = float(x)", "__float__"),
        ("y = np.float32(x)", "__float__"),
        ("y = int(x)", "__float__"),
        ("y = np.int64(x)", "__float__"),
        ("y = np.uint8(x)", "__float__"),
        ("y = complex(x)", "__float__"),
        ("y = np.complex64(x)", "__float__"),
        ("y = range(x)", "__float__"),
        ("y = slice(x)", "__float__"),
        ("y = round(x)", "__float__"),
        ("y = timedelta(x)", "__float__"),
        ("y = bytes(x)", "__float__"),
        ("y = bytearray(x)", "__float__"),
        ("y = Decimal(x)", "__float__"),
        ("y = _Own(x)", "__float__"),
        ("y = '%d' % x", "__float__"),
        ("y = z[x]", "__float__"),
        ("z %= x", "__float__"),
        ("x[mask] -= 1", "__getitem__"),
    ],
)
def test_other_operations(line_found, statement, name):
    source = f"def f(x):\n    k: list[int] = x[0]\n    {statement}\n    x[1:, -1] = 2"

    assert line_found(source, name) == statement
    assert line_found(f"{source}\n    {statement} ", name) is None


def test_call_of_a_module_may_be_any_call(line_found):
    assert line_found("def f(x):\n    return a(b(x))", "__call__") == "return a(b(x))"
    assert line_found("def f(x):\n    y = a(x)\n    return b(y)", "__call__") is None


# Files.

SOURCE = "def f(x):\n    x.item()\n"


def lines_of(file, *folders):
    return SourceLines([str(x) for x in folders]).line_of(str(file), "f", 1, "item")


def test_relative_names_are_looked_for_in_the_present_folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SOURCE)

    assert lines_of("train.py") is None
    monkeypatch.chdir(tmp_path)
    assert lines_of("train.py") == 2


@pytest.mark.parametrize(
    "name", ["/home/me/src/train.py", "C:\\me\\src\\train.py", "../src/train.py"]
)
def test_longest_end_of_the_name_that_a_folder_has(tmp_path, name):
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").write_text("# another\n" + SOURCE)
    (tmp_path / "src" / "train.py").write_text(SOURCE)

    assert lines_of(name, tmp_path / "nothing", tmp_path) == 2


def test_file_that_does_not_fit_gives_way_to_one_that_does(tmp_path):
    (tmp_path / "train.py").write_text("# edited\n" + SOURCE)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "train.py").write_text("pass")
    (tmp_path / "b" / "train.py").write_text(SOURCE)

    assert lines_of(tmp_path / "train.py", tmp_path / "a") is None
    assert lines_of(tmp_path / "train.py", tmp_path / "a", tmp_path / "b") == 2


@pytest.mark.parametrize(
    "content",
    [
        b"def f(x:",
        b"def f(x):\n    x.item()\n\0",
        b"def f(x):\n    x.item()\n'\xff'",
        SOURCE.encode() + b"#" * 5_000_000,
        SOURCE.encode() + b"y = " + b"(" * 10_000 + b")" * 10_000,
        SOURCE.encode() + b"y = x" + b".y()" * 5_000,
    ],
    ids=["unfinished", "null", "encoding", "large", "brackets", "deep"],
)
def test_file_that_cannot_be_parsed(tmp_path, content):
    file = tmp_path / "train.py"
    file.write_bytes(content)

    assert lines_of(file) is None


def test_file_of_just_5_mb_is_read(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SOURCE + "#" * (5_000_000 - len(SOURCE)))

    assert lines_of(file) == 2


def test_warnings_about_the_users_source_are_not_shown(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SOURCE + "x = '\\d' is 1\n")

    assert lines_of(file) == 2


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")

    assert lines_of(tmp_path / "pipe.py") is None
    assert lines_of(tmp_path) is None
    assert lines_of("\0") is None


def test_no_share_is_looked_at_and_nothing_of_proc_is_read(monkeypatch):
    def look(path, **_):
        looked.append(str(path))
        return real(path)

    looked, real = [], Path.stat
    monkeypatch.setattr(Path, "stat", look)
    for name in ("//host/share/train.py", "\\\\host\\share\\train.py", "\\/host/train.py"):
        assert not SourceLines().has_source(name)
    assert looked == []
    assert not SourceLines().has_source("/proc/self/environ")
    assert looked


def test_each_file_is_parsed_once(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    lines = SourceLines()

    assert lines.line_of(str(file), "f", 1, "item") == 2
    file.unlink()
    assert lines.line_of(str(file), "f", 1, "item", 0, 1) == 2


def test_text_of_several_lines_is_trusted_where_the_parser_can_count(line_found):
    source = "def f(x):\n    f'''\n    {1}\n    {x.item()}\n    '''"

    assert line_found(source, "item") == ("{x.item()}" if sys.version_info >= (3, 12) else None)


# What iterates, and what a `with` statement calls.


@pytest.mark.parametrize(
    ("source", "called", "row"),
    [
        ("def f(x):\n    for y in x:\n        y.to()", "__iter__", "for y in x:"),
        ("def f(x):\n    for y in x:\n        y.to()", "__next__", "for y in x:"),
        ("def f(x):\n    x = [\n        1 for y in x]", "__next__", "1 for y in x]"),
        ("def f(x):\n    y = enumerate(x)\n    return 3", "__iter__", "y = enumerate(x)"),
        ("def f(x):\n    y = next(x)\n    return 3", "__next__", "y = next(x)"),
        ("def f(x):\n    g(1,\n      *x)", "__next__", "*x)"),
        ("def f(x):\n    y, z = x\n    return [y, z]", "__iter__", "y, z = x"),
        ("def f(x):\n    yield 1\n    yield from x", "__next__", "yield from x"),
        ("def f(x):\n    with x as y:\n        y.to()", "__enter__", "with x as y:"),
        ("def f(x):\n    with x as y:\n        y.to()", "__exit__", "with x as y:"),
        ("def f(x):\n    with x, y:\n        y.to()", "__enter__", "with x, y:"),
        ("def f(x):\n    for y in x:\n        list(y)", "__iter__", None),
    ],
)
def test_what_is_called_without_a_name(line_found, source, called, row):
    assert line_found(source, called) == row


def test_a_loop_that_ran_already_asks_for_the_next_and_not_for_another_iterator(line_found):
    source = "def f(x):\n    y = next(x)\n    for y in x:\n        y.to()"

    assert line_found(source, "__next__", at="y.to()") == "for y in x:"
    assert line_found(source, "__iter__", at="y.to()") is None


def test_a_class_that_is_written_small_makes_an_object(line_found):
    source = "def f(x):\n    y = g(x)\n    with torch.no_grad():\n        y.to()"

    assert line_found(source, "__init__") == "with torch.no_grad():"


# Where the recording stored what the source calls.

RECORDED_SOURCE = """def f(x):
    x.cpu()
    return x.item()
"""


@pytest.fixture
def recorded(tmp_path):
    """What a recording stores of a train.py that is gone."""
    file = tmp_path / "train.py"
    file.write_text(RECORDED_SOURCE)
    scopes = scopes_as_lists(read_scopes(file))
    file.unlink()
    return {"train.py": json.loads(json.dumps(scopes))}


def test_stored_scopes_name_the_line_without_the_file(recorded):
    lines = SourceLines((), recorded)

    assert lines.line_of("train.py", "f", 1, "item") == 3
    assert lines.line_of("src/train.py", "f", 1, "item") == 3
    assert lines.line_of("other.py", "f", 1, "item") is None
    assert lines.has_source("train.py")
    assert not lines.has_source("other.py")


def test_stored_scopes_go_before_a_file_that_was_edited_since(recorded, tmp_path):
    (tmp_path / "train.py").write_text(
        RECORDED_SOURCE.replace("    x.cpu()\n", "    x.cpu()\n\n\n")
    )

    assert SourceLines([str(tmp_path)]).line_of("train.py", "f", 1, "item") == 5
    assert SourceLines([str(tmp_path)], recorded).line_of("train.py", "f", 1, "item") == 3


def test_of_two_stored_files_that_may_be_meant_it_is_neither(recorded):
    twice = {"a/train.py": recorded["train.py"], "b/train.py": recorded["train.py"]}

    assert SourceLines((), twice).line_of("train.py", "f", 1, "item") is None
    assert SourceLines((), twice).line_of("a/train.py", "f", 1, "item") == 3


@pytest.mark.parametrize("damaged", [None, 3, [3], [["f"]], {"f": 1}, [["f", 1, 2, 3, 4, 5]]])
def test_damaged_scopes_name_no_line(damaged):
    assert SourceLines((), {"train.py": damaged}).line_of("train.py", "f", 1, "item") is None


@pytest.mark.parametrize("line", [3, "3", [3], {}, 3.5, 1e400])
def test_line_that_is_no_number_is_none(line):
    scope = ["f", [1], [["item", line, 3, 9, [], True]], [], [], False]
    found = SourceLines((), {"train.py": [scope]}).line_of("train.py", "f", 1, "item")
    assert found == (3 if line == 3 else None)


@pytest.mark.parametrize(
    "path", ["model/program/source_scopes.py", "record/hooks.py", "read/cache.py"]
)
def test_stored_scopes_are_those_of_the_file_without_its_text(path):
    scopes = read_scopes(PACKAGE / path)
    stored = json.loads(json.dumps(scopes_as_lists(scopes)))

    assert scopes_from_lists(stored) == tuple(scope for scope in scopes if scope.spots)


# What is quoted of a line.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\tx.item()  \r\n", "x.item()"),
        ("print('\x1b[31m\u202ered')", "print('[31mred')"),
        (f"x = f({'a, ' * 60})", f"x = f({'a, ' * 30}a,…"),
        ("x" * 10_000, f"{'x' * 99}…"),
    ],
)
def test_a_line_is_quoted_in_one_row_without_what_a_terminal_acts_upon(text, expected):
    assert quoted(text) == expected
    assert len(expected) <= 100
