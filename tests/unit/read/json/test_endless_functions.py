"""Python functions whose end the profiler missed."""

import numpy as np
import pytest

from tracelab.read.json.endless_functions import find_endless


@pytest.mark.parametrize(
    ("functions", "endless"),
    [
        ([(0, 100, 0), (10, 50, 0), (20, 40, 0), (50, 100, 0)], []),
        # `apply` began in the second function, and seems to run until after the third.
        ([(0, 100, 0), (10, 50, 0), (20, 95, 0), (60, 90, 0)], [2]),
        # One in it is as long; the next function ends after both, and is none of them.
        ([(0, 100, 0), (10, 50, 0), (20, 80, 0), (30, 75, 0), (60, 90, 0)], [2, 3]),
        # Another thread.
        ([(0, 50, 0), (10, 90, 1)], []),
        # What touches is not inside.
        ([(0, 50, 0), (50, 90, 0)], []),
    ],
    ids=["nested", "outlasts", "one in another", "another thread", "one after another"],
)
def test_functions_that_outlast_the_one_they_began_in(functions, endless):
    start_ns, end_ns, thread = np.array(functions, dtype=np.int64).T
    assert find_endless(start_ns, end_ns, thread.astype(np.int32)).tolist() == endless


def test_no_functions():
    nothing = np.zeros(0, dtype=np.int64)
    assert find_endless(nothing, nothing, nothing.astype(np.int32)).tolist() == []
