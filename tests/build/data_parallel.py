"""The events of a program with `nn.DataParallel` over two GPUs, as a profiler writes them.

A step of 2 ms on the main thread:

    0 ..  100  `train.py(8): step` begins, `DataParallel` copies its weights (one launch for GPU 0)
  100 ..  120  `parallel_apply` starts its two threads
  120 .. 1000  it waits for them in `join`
 1000 .. 1900  a loss and the optimizer (nine launches for GPU 0)

Its two threads launch in turns, each every 80 us, the first from 140 on for GPU 0, the second from
180 on for GPU 1; each kernel takes 10 us. Of the two the file has nothing but their calls, under
the numbers by which the system's thread library knows them.
"""

from __future__ import annotations

from tests.build.files import Event, annotation, kernel, launch, python, step
from tests.build.rows import US

STEP_US = 2_000
LOCK = "<built-in method acquire of _thread.lock object at 0x7f>"
FIRST_THREAD, SECOND_THREAD = -1_493_174_720, -1_484_782_016
PARALLEL_APPLY = "torch/nn/parallel/parallel_apply.py(31): parallel_apply"


def step_events(number: int, *, with_stacks: bool = True) -> list[Event]:
    """The events of one step, which is the number-th."""
    begin_us = number * STEP_US
    correlation = iter(range(100 * number + 1, 100 * number + 100))

    def at(us: float) -> float:
        return (begin_us + us) * US

    def launched(us: float, device: int, **thread: int) -> list[Event]:
        i = next(correlation)
        return [
            launch(at(us), at(us + 5), i, **thread),
            kernel(at(us + 10), at(us + 20), device=device, correlation=i),
        ]

    frames = [
        python("train.py(8): step", at(0), at(1_950)),
        python("nn.Module: DataParallel_0", at(10), at(1_000)),
        python("torch/nn/parallel/data_parallel.py(171): forward", at(12), at(999)),
        python(PARALLEL_APPLY, at(100), at(990)),
        python("threading.py(945): start", at(105), at(112)),
        python("threading.py(945): start", at(112), at(119)),
        python("threading.py(1087): join", at(120), at(980)),
        python("threading.py(1125): _wait_for_tstate_lock", at(122), at(978)),
        python(LOCK, at(124), at(976)),
        python("threading.py(1087): join", at(982), at(989)),
        python("torch/optim/sgd.py(105): step", at(1_400), at(1_940)),
    ]
    events = [step(number, at(0), at(1_960)), annotation("DataParallel.forward", at(11), at(999))]
    events += frames if with_stacks else []
    events += launched(50, 0)
    for i in range(10):
        events += launched(140 + 80 * i, 0, tid=FIRST_THREAD)
        events += launched(180 + 80 * i, 1, tid=SECOND_THREAD)
    for i in range(9):
        events += launched(1_020 + 100 * i, 0)
    return events


def data_parallel(*, steps: int = 6, with_stacks: bool = True) -> list[Event]:
    """The events of a program with `nn.DataParallel`."""
    return [
        event for number in range(steps) for event in step_events(number, with_stacks=with_stacks)
    ]
