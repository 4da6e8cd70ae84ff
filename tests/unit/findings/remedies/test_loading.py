"""Remedies of data loading, in the layout that torch 2.11 writes."""

import pytest

from tests.build.remedy_programs import recognized
from tests.build.rows import annotation, python

NEXT = "torch/utils/data/dataloader.py(720): __next__"
IN_PROCESS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
OF_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ITER = "torch/utils/data/dataloader.py(492): __iter__"


def loads(name, lasts=5_000, *, stacks=False):
    def run(program):
        if stacks:
            program.add(python, NEXT, 90, 110 + lasts)
        program.add(annotation, name, 100, 100 + lasts)

    return run


@pytest.mark.parametrize(
    ("run", "in_steps", "found"),
    [
        (loads(IN_PROCESS), range(5), {"loader-without-workers": 5}),
        (loads(IN_PROCESS, stacks=True), range(5), {"loader-without-workers": 10}),
        (loads(IN_PROCESS, 900), range(5), {}),
        (loads(OF_WORKERS), range(5), {"starved-workers": 5}),
        (loads(OF_WORKERS), (1, 3), {}),
        (loads(OF_WORKERS, 400), range(5), {}),
    ],
    ids=[
        "no workers",
        "with stacks",
        "too little for workers",
        "starved",
        "late now and then",
        "ready",
    ],
)
def test_which_loader_is_waited_for(run, in_steps, found):
    found_events = recognized(run, in_steps=in_steps)
    found_events.pop("data-in-launching-thread", None)  # the general one
    assert found_events == found


def starts(program):
    program.add(python, ITER, 100, 900)
    program.add(python, "torch/utils/data/dataloader.py(758): __init__", 110, 890)
    program.add(python, "multiprocessing/popen_fork.py(62): _launch", 200, 400)


@pytest.mark.parametrize(
    ("in_steps", "found"),
    [
        ((1, 3), {"workers-started-again": 4}),
        ((2,), {"workers-started-again": 2}),
        ((0, 3), {"workers-started-again": 4}),
        ((0,), {}),
    ],
    ids=["each epoch", "the epoch that begins", "again after the first step", "the first time"],
)
def test_workers_that_are_started_again(in_steps, found):
    assert recognized(starts, in_steps=in_steps) == found


@pytest.mark.parametrize(("thread", "found"), [(0, {"unpickling-in-training-thread": 5}), (1, {})])
def test_unpickling_in_the_thread_that_launches(thread, found):
    def run(program):
        name = "torch/multiprocessing/reductions.py(171): rebuild_storage_fd"
        program.add(python, name, 100, 900, thread=thread)

    assert recognized(run) == found


def test_data_prepared_without_a_loader():
    def run(program):
        program.add(python, "train.py(5): collate", 100, 900)

    assert recognized(run) == {"data-in-launching-thread": 5}
