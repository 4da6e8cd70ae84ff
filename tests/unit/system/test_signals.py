import os
import signal
import threading

from tracelab.system.signals import uninterrupted


def test_what_must_be_finished_is_not_interrupted():
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) == before


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
