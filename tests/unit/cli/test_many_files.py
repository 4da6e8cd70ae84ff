import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.cli.many_files import map_files
from tracelab.read.streams import Source

SOURCES = tuple(Source(f"{number}.json", number, named=True) for number in (3, 1, 2))


def double(source):
    return 2 * source.rank


def times(source, number):
    return source.rank * number


def make_pool():
    return ThreadPoolExecutor(2)


def make_no_pool():
    return None


@pytest.mark.parametrize("spec", ["serial", "threads", "processes", None])
def test_maps_in_order(spec):
    assert map_files(double, SOURCES, spec=spec) == [6, 2, 4]
    assert map_files(times, SOURCES, [1, 2, 3], spec=spec) == [3, 2, 6]


def test_takes_any_pool_from_a_function(monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    assert map_files(double, SOURCES, spec="test_many_files:make_pool") == [6, 2, 4]


@pytest.mark.parametrize(
    "spec",
    [
        "cluster",
        "no_such_module:f",
        "test_many_files:none",
        "test_many_files:make_no_pool",
        ".relative:f",
        "os:sep",
    ],
)
def test_anything_else_is_wrong_usage(spec, monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    with pytest.raises(UsageError):
        map_files(double, SOURCES, spec=spec)


def test_maps_on_a_dask_cluster():
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=":0",  # any port: None is the usual one, which another cluster may have
    )
    with cluster:
        spec = cluster.scheduler_address.replace("tcp://", "dask://")
        assert map_files(double, SOURCES, spec=spec) == [6, 2, 4]


def die(source):
    if source.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does where memory is short


@pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGKILL")
def test_a_process_that_is_killed_is_told():
    with pytest.raises(UnreadableInputError, match="a process was killed while it read a file"):
        map_files(die, SOURCES, spec="processes")


def wait(source):
    if source.rank:
        threading.Event().wait()  # for as long as the process is there


def test_an_error_here_does_not_wait_for_the_others(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tracelab.cli.many_files.Bar.end_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        map_files(wait, [Source("a", 0, named=True), *SOURCES], spec="processes", jobs=2)
