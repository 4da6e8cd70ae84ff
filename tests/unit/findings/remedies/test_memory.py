"""Remedies of the allocators: which calls are whose."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import call, operator, python

OTHER_THREAD = 1
EMPTY_CACHE = "torch/cuda/memory.py(212): empty_cache"
PIN = "torch/utils/data/_utils/pin_memory.py(55): pin_memory"


def test_empty_cache_and_what_it_frees():
    def run(program):
        program.add(python, EMPTY_CACHE, 100, 400)
        program.add(call, "cudaFree", 110, 390)
        program.add(call, "cudaMalloc", 500, 700)

    # Both calls are the allocator's, in the first steps and later; the function is the pitfall.
    found = {"empty-cache-in-loop": 5, "allocator-churn": 10}
    assert recognized(run) == found


@pytest.mark.parametrize(
    ("name", "remedy"), [("aten::cat", "cache-grown-by-cat"), ("aten::mm", "allocator-churn")]
)
def test_memory_that_a_growing_tensor_asks_for(name, remedy):
    def run(program):
        program.add(operator, name, 100, 900)
        program.add(call, "cudaFree", 110, 390)
        program.add(call, "cudaMalloc", 500, 700)

    assert recognized(run)[remedy] == 10


def test_memory_that_the_first_steps_ask_for():
    def run(program):
        program.add(call, "cudaMalloc", 500, 700)

    assert recognized(run, in_steps=(0, 1)) == {"allocator-growth": 2}


@pytest.mark.parametrize(
    ("function", "found"),
    [(PIN, {"pin-thread-allocates": 5}), ("train.py(9): stage", {})],
    ids=["the loader's", "another"],
)
def test_allocations_of_a_thread_that_does_not_launch(function, found):
    def run(program):
        program.add(python, function, 100, 900, thread=OTHER_THREAD)
        program.add(call, "cudaHostAlloc", 110, 890, thread=OTHER_THREAD)

    assert recognized(run) == found
