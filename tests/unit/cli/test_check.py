import pytest

from tracelab.base.errors import UsageError
from tracelab.cli.check import parse_assignments


def test_numbers_with_a_key():
    texts = ["copy=2", "comm:compute=8.5"]
    assert parse_assignments(texts, "--x", "copy=2") == {"copy": 2.0, "comm:compute": 8.5}
    assert parse_assignments([], "--x", "copy=2") == {}


@pytest.mark.parametrize("text", ["copy", "copy=", "=2", "copy=x"])
def test_what_is_written_in_another_way_is_answered_with_an_example(text):
    with pytest.raises(UsageError) as caught:
        parse_assignments([text], "--max-exposed", "copy=2")
    sentence = f"--max-exposed takes a kind and a percentage, as copy=2, not {text!r}"
    assert str(caught.value) == sentence
