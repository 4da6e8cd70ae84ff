import pytest

from tracelab.base.errors import UsageError
from tracelab.record.hooks import MissingFunctionError, around, watch_function


@pytest.mark.parametrize("name", ["no_such_module:f", "textwrap:no_such", "textwrap:A.b"])
def test_function_that_is_not_there_is_wrong_usage(name):
    with pytest.raises(MissingFunctionError, match=f"^{name}: "):
        watch_function(name, lambda: None)
    assert issubclass(MissingFunctionError, UsageError)


def test_something_is_called_before_and_after_each_call():
    lines = []
    wrapped = around(
        lambda: lines.append("call"),
        before=lambda: lines.append("before"),
        after=lambda: lines.append("after"),
    )
    wrapped()
    wrapped()
    assert lines == ["before", "call", "after"] * 2


def test_a_call_that_fails_has_not_ended():
    lines = []

    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        around(fail, after=lambda: lines.append("after"))()
    assert lines == []


def test_what_is_compiled_ends_no_step():
    torch = pytest.importorskip("torch")
    steps, graphs = [], []
    doubled = around(lambda x: 2 * x, after=lambda: steps.append(None))

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(doubled, backend=backend)
    for _ in range(3):
        compiled(torch.ones(2))
    assert len(graphs) == 1
    assert steps == []
    doubled(1)
    assert steps == [None]
