"""Functions in several processes: in order, and over at once when one of them fails or dies."""

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

import pytest

from tracelab.base.errors import UnreadableInputError
from tracelab.system.processes import open_processes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no named pipes")
LARGE = 20_000_000  # bytes, many times what a pipe takes before somebody reads it


@pytest.fixture
def pipe(tmp_path):
    """What one process opens to write, and another to read: each waits there for the other."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def double(number, pipe=None):
    if number == 0:
        pipe.read_bytes()
    elif number == 4:
        pipe.write_bytes(b"")
    return 2 * number


def test_results_come_in_order_whoever_is_first(pipe):
    """GIVEN a first task that ends after the last one has begun"""
    with open_processes(2) as run:
        assert list(run(double, range(5), [pipe] * 5)) == [0, 2, 4, 6, 8]
        assert list(run(double, [7])) == [14]
        assert list(run(double, [])) == []


class Large:
    """A result that tells by a pipe when it is about to be written."""

    def __init__(self, pipe):
        self._pipe = pipe

    def __reduce__(self):
        self._pipe.write_bytes(b"")
        return bytes, (bytes(LARGE),)


def large_or_fault(number, pipe):
    if number == 1:
        pipe.read_bytes()  # until the other one is at writing its first result
        raise ValueError("this one is damaged")
    return Large(pipe) if number == 2 else bytes(LARGE)


def test_a_fault_does_not_wait_for_a_result_that_nobody_reads(pipe):
    with open_processes(2) as run, pytest.raises(ValueError, match="is damaged") as fault:
        list(run(large_or_fault, [1, 2, 3, 3], [pipe] * 4))
    assert "in large_or_fault" in "".join(fault.value.__notes__)  # where, in that process


def small_then_dies_at_writing(number, pipe):
    if number == 0:
        return b""
    os.open(pipe, os.O_WRONLY)  # open until the process is dead

    def write_half(connection, content):
        os.write(connection.fileno(), content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = write_half
    return bytes(1000)


def test_half_a_result_is_the_end_of_its_process(pipe):
    with open_processes(2) as run:
        results = run(small_then_dies_at_writing, [0, 1], [pipe, pipe])
        assert next(results) == b""
        pipe.read_bytes()  # until the other one is dead
        with pytest.raises(UnreadableInputError, match="a process was killed"):
            next(results)


def return_or_go_on(number):
    if number:
        threading.Event().wait()
    return number


def test_those_that_still_work_are_ended_with_the_block():
    with open_processes(3) as run:
        assert next(run(return_or_go_on, [0, 1, 1])) == 0
