import os
import signal
import threading

import pytest

from tracelab.system.processes import (
    leave_signals_to_the_main_thread,
    terminable,
    uninterrupted,
)


@pytest.mark.parametrize("error", [None, OSError])
def test_what_must_be_finished_is_interrupted_after_it(error):
    """GIVEN Ctrl-C while something is finished, within something else that is
    THEN it comes after both, also where these fail."""
    before = signal.getsignal(signal.SIGINT)
    done = []

    def finish():
        with uninterrupted():
            with uninterrupted():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("inner")
                if error is not None:
                    raise error
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        finish()
    assert done == ["inner", "outer"][: 1 if error else 2]
    assert signal.getsignal(signal.SIGINT) == before


def test_of_two_signals_the_one_that_ends_more_comes():
    def finish():
        with terminable(), uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SystemExit) as ended:
        finish()
    assert ended.value.code == 128 + signal.SIGTERM


def test_other_threads_leave_signals_alone():
    before = signal.getsignal(signal.SIGINT)

    def finish():
        with uninterrupted():
            assert signal.getsignal(signal.SIGINT) == before
        finished.append(1)

    finished = []
    thread = threading.Thread(target=finish)
    thread.start()
    thread.join()
    assert finished


def test_a_signal_wakes_the_main_thread_where_others_leave_it_alone():
    """GIVEN two threads that wait, and the one that leaves signals alone has started the other
    THEN both block them, and the main thread does not."""

    def blocked():
        return signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def leave():
        leave_signals_to_the_main_thread()
        masks.append(blocked())
        started = threading.Thread(target=lambda: masks.append(blocked()))
        started.start()
        started.join()

    masks = []
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    signals = {signal.SIGINT, signal.SIGTERM}
    assert [mask & signals for mask in masks] == [signals, signals]
    assert not blocked() & signals
