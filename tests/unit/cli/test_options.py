"""Core code names Python's options; the command line says its own flags instead."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import tracelab
from tests.unit.comparison.test_budgets import make_report, make_steps, make_window
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.cli.options import FLAGS, sentence_of
from tracelab.comparison.budget_check import check
from tracelab.comparison.budgets import Budgets
from tracelab.model.kernel_kinds import comm_test
from tracelab.system.processes import _killed_process_reported

PACKAGE = Path(tracelab.__file__).parent


def a_killed_process():
    with _killed_process_reported():
        raise EOFError


@pytest.mark.parametrize(
    ("fail", "in_python", "on_the_command_line"),
    [
        (
            lambda: comm_test(["("]),
            "`comm_pattern` '(' is not a valid regular expression: ",
            "--comm-pattern '(' is not a valid regular expression: ",
        ),
        (
            a_killed_process,
            "because memory ran out; `processes` 1 reads one file at a time",
            "because memory ran out; --jobs 1 reads one file at a time",
        ),
        (
            lambda: check(Budgets(max_idle=5), [make_report(*make_steps(1))]),
            "this report covers only step 0: select it with `step`",
            "this report covers only step 0: select it with --step",
        ),
        (
            lambda: check(Budgets(max_step_ms=5), [make_report(make_window())]),
            "; `step_on` selects other annotations",
            "; --step-on selects other annotations",
        ),
    ],
)
def test_each_user_reads_the_name_of_an_option_that_is_there(fail, in_python, on_the_command_line):
    with pytest.raises((UsageError, UnreadableInputError)) as caught:
        fail()
    assert in_python in str(caught.value)
    assert on_the_command_line in sentence_of(caught.value)
    assert "`" not in sentence_of(caught.value)


def test_an_error_that_names_no_option_stays_as_it_is():
    assert sentence_of(UsageError("a function named `step`")) == "a function named `step`"


def test_the_option_travels_between_processes():
    error = pickle.loads(pickle.dumps(UsageError("say `step`", option="step")))
    assert (str(error), error.option) == ("say `step`", "step")


def options_in(module):
    """The options that the errors of a module name."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            yield from (ast.literal_eval(x.value) for x in node.keywords if x.arg == "option")


def texts_in(module):
    """All literal texts of a module but its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


def test_only_the_command_line_and_one_table_know_flags():
    render = PACKAGE / "render"
    of_css = render / "html" / "page.py"  # custom properties, as in var(--k-compute)
    elsewhere = [PACKAGE / "cli", PACKAGE / "workloads", render / "text" / "hints.py", of_css]
    of_others = PACKAGE / "findings" / "remedies"  # what to pass to torchrun, to Megatron ...
    own = rf"(?:{'|'.join(FLAGS.values())})(?![-\w])"
    found = []
    for path in PACKAGE.rglob("*.py"):
        if any(path.is_relative_to(known) for known in elsewhere):
            continue
        source = path.read_text(encoding="utf-8")
        if "--" not in source and "option=" not in source:
            continue
        module = ast.parse(source)
        flag = own if path.is_relative_to(of_others) else r"--[a-z]"
        found += [(path.name, text) for text in texts_in(module) if re.search(flag, text)]
        assert set(options_in(module)) <= FLAGS.keys()
    assert found == []
