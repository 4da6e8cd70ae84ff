"""Where a finding is, in words."""

import pytest

from tracelab.findings.finding import Where
from tracelab.findings.places import place_text

ONE_LINE = {"function": "train", "file": "src/train.py", "line": 40}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ONE_LINE, "train.py:40 in train"),
        ({**ONE_LINE, "function": "<module>"}, "train.py:40 in the script"),
        ({**ONE_LINE, "function": "<lambda>"}, "train.py:40 in a lambda"),
        ({**ONE_LINE, "line": None, "lines": (40, 51)}, "train.py:40 or 51 in train"),
        ({**ONE_LINE, "line": None, "function_line": 30}, "train.py in train (entered at line 30)"),
        ({**ONE_LINE, "lines": (), "function_line": 30}, "train.py:40 in train"),
        ({**ONE_LINE, "line": None}, "train.py in train"),
        ({**ONE_LINE, "file": "C:\\src\\train.py"}, "train.py:40 in train"),
        ({**ONE_LINE, "file": "net/__init__.py"}, "net/__init__.py:40 in train"),
        ({"annotation": "loss", "operator": "aten::mm"}, 'in "loss" (annotation)'),
        ({"operator": "aten::mm", "api": "cudaMalloc"}, "in `aten::mm`"),
        ({"api": "cudaMalloc"}, ""),
    ],
)
def test_a_place_is_the_most_exact_that_is_known(where, expected):
    assert place_text(Where(1, **where)) == expected


def test_a_thread_without_functions_is_known_by_the_wait_for_it():
    where = Where(1, function="step", file="train.py", line=7, waited_in="result")
    assert place_text(where) == "train.py:7 in step, in a thread that `result` waits for"
    where = Where(1, waited_in="parallel_apply")
    assert place_text(where) == "in threads that `parallel_apply` started"
