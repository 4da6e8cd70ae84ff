"""The longest part of a sequence that occurs in a text as well."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.examples import examples
from tests.reference.origins import longest_run
from tracelab.model.cuda_graphs.common_runs import CommonRun, longest_common_runs


def runs(text, *sequences, fewest=1):
    return longest_common_runs(
        np.array(text, dtype=np.int64),
        [np.array(sequence, dtype=np.int64) for sequence in sequences],
        fewest,
    )


def test_a_sequence_is_found_wherever_it_stands():
    assert runs([7, 1, 2, 3, 7, 1, 2, 3], [1, 2, 3]) == [CommonRun(0, 3, (1, 5))]


def test_of_a_sequence_that_is_not_there_the_longest_part_is_found():
    # 2 3 4 stands at 3; 8 9 alone is shorter.
    assert runs([8, 9, 0, 2, 3, 4], [1, 2, 3, 4, 5, 8, 9]) == [CommonRun(1, 3, (3,))]


def test_what_ends_a_part_of_the_text_is_in_no_run():
    assert runs([1, 2, -1, 3, 4, 5], [1, 2, 3, 4, 5]) == [CommonRun(2, 3, (3,))]


def test_two_parts_of_the_same_length_are_no_answer():
    assert runs([1, 2, 9, 3, 4], [1, 2, 3, 4]) == [None]


def test_shorter_runs_than_asked_for_are_none():
    assert runs([1, 2, 3], [1, 2, 3], [2, 3, 9], fewest=3) == [CommonRun(0, 3, (0,)), None]


def test_nothing_in_common_and_nothing_at_all():
    assert runs([1, 2], [3, 4], []) == [None, None]
    assert runs([], [3, 4]) == [None]
    assert runs([1, 2]) == []


def test_of_many_places_the_last_ones_are_given():
    [run] = runs([1, 2, 9] * 100, [1, 2])
    assert run.text_first == tuple(range(3 * 36, 300, 3))


@pytest.mark.parametrize("length", [63, 64, 65, 1000])
def test_lengths_around_powers_of_two(length):
    text = [5, *range(10, 10 + length), 5]
    assert runs(text, text[1:-1]) == [CommonRun(0, length, (1,))]


@examples(150)
@given(
    st.lists(st.integers(-1, 2), max_size=30),
    st.lists(st.lists(st.integers(0, 2), max_size=15), max_size=3),
)
def test_the_slow_model_finds_the_same(text, sequences):
    expected = []
    for sequence in sequences:
        run = longest_run([None if x < 0 else x for x in text], sequence)
        expected.append(run and CommonRun(run[0], run[1], tuple(run[2])))
    assert runs(text, *sequences) == expected
