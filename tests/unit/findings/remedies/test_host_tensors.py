"""Tensors that the CPU computes in the thread that launches."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import annotation, call, operator, python
from tracelab.findings.remedies import REMEDIES

ON_CPU = [remedy for remedy in REMEDIES if remedy.id == "computed-on-cpu"]

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def buckets(program):
    """A function of 2 ms: two operators on the CPU behind a view, and the copy behind it."""
    program.add(python, "train.py(7): bias", 90, 2_300)
    program.add(python, "train.py(3): buckets", 100, 2_100)
    program.add(operator, "aten::slice", 110, 130)
    program.add(operator, "aten::log", 200, 1_000)
    program.add(operator, "aten::mul", 1_100, 1_900)
    program.add(operator, "aten::to", 2_150, 2_250)
    program.launch(2_160, 2_200)


def views(program):
    program.add(python, "train.py(3): heads", 100, 900)
    program.add(operator, "aten::view", 110, 450)
    program.add(operator, "aten::transpose", 500, 850)


def counts(program):
    """The optimizer's step counters, which are on the CPU."""
    program.add(operator, "aten::_foreach_add_", 100, 140)


def single(program):
    """An operator in a function that launches as well."""
    program.add(python, "train.py(7): step", 90, 2_300)
    program.add(operator, "aten::std", 100, 900)
    program.add(operator, "aten::mm", 1_000, 1_100)
    program.launch(1_010, 1_020)


def asks_cuda(program):
    """Memory is got in it: the operator is the GPU's, even where its kernel is lost."""
    program.add(operator, "aten::empty", 100, 900)
    program.add(call, "cudaMalloc", 200, 800)


def loaded(program):
    program.add(annotation, NEXT, 90, 950)
    program.add(operator, "aten::stack", 100, 900)


@pytest.mark.parametrize(
    ("run", "in_steps", "found"),
    [
        (buckets, range(5), 5),  # the function `buckets` as a whole; `bias` launches
        (buckets, (0, 2), 0),
        (views, range(5), 0),
        (counts, range(5), 0),
        (single, range(5), 5),
        (asks_cuda, range(5), 0),
        (loaded, range(5), 0),
    ],
    ids=["a function", "once, later", "views", "counters", "an operator", "asks CUDA", "a loader"],
)
def test_what_the_cpu_computes(run, in_steps, found):
    events = recognized(run, in_steps=in_steps, remedies=ON_CPU)
    assert events.get("computed-on-cpu", 0) == found
