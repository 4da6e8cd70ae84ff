"""Functions in several processes: in order, and over at once when one of them fails or dies."""

import os
import signal
import sys
import threading
import time

import pytest

from tracelab.errors import UnreadableInputError
from tracelab.system.processes import open_processes

LARGE = 20_000_000  # bytes, many times what a pipe takes before somebody reads it


def double(number, delay=0.0):
    time.sleep(delay)
    return 2 * number


def test_results_come_in_order_whoever_is_first():
    with open_processes(2) as run:
        assert list(run(double, range(5), [0.3, 0, 0, 0.1, 0])) == [0, 2, 4, 6, 8]
        assert list(run(double, [7])) == [14]
        assert list(run(double, [])) == []


def large_or_fault(number):
    if number == 1:
        time.sleep(0.2)  # by then the other one is at writing its result
        raise ValueError("this one is damaged")
    return bytes(LARGE)


def test_a_fault_does_not_wait_for_a_result_that_nobody_reads():
    with open_processes(2) as run, pytest.raises(ValueError, match="is damaged") as fault:
        list(run(large_or_fault, [1, 2, 2, 2]))
    assert "in large_or_fault" in "".join(fault.value.__notes__)  # where, in that process


def small_then_dies_at_writing(number, pipe):
    if number == 0:
        return b""
    os.open(pipe, os.O_WRONLY)  # open until the process is dead
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(LARGE)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGKILL")
def test_half_a_result_is_the_end_of_its_process(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open_processes(2) as run:
        results = run(small_then_dies_at_writing, [0, 1], [pipe, pipe])
        assert next(results) == b""
        pipe.read_bytes()  # nobody reads what the other one writes, and it is killed at that
        with pytest.raises(UnreadableInputError, match="a process was killed"):
            next(results)


def return_or_go_on(number):
    if number:
        threading.Event().wait()
    return number


def test_those_that_still_work_are_ended_with_the_block():
    with open_processes(3) as run:
        assert next(run(return_or_go_on, [0, 1, 1])) == 0
