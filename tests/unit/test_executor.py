from concurrent.futures import ThreadPoolExecutor

import pytest

from tracelab.errors import UsageError
from tracelab.executor import open_map


def double(number):
    return 2 * number


def make_pool():
    return ThreadPoolExecutor(2)


def make_no_pool():
    return None


@pytest.mark.parametrize("spec", ["serial", "threads", "processes", None])
def test_maps_in_order(spec):
    with open_map(3, spec) as run:
        assert list(run(double, [3, 1, 2])) == [6, 2, 4]


def test_takes_any_pool_from_a_function(monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    with open_map(2, "test_executor:make_pool") as run:
        assert list(run(double, [1, 2])) == [2, 4]


@pytest.mark.parametrize(
    "spec", ["cluster", "no_such_module:f", "test_executor:none", "test_executor:make_no_pool"]
)
def test_anything_else_is_wrong_usage(spec, monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    with pytest.raises(UsageError), open_map(2, spec):
        pass


def test_maps_on_a_dask_cluster():
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=None,
    )
    with cluster:
        spec = cluster.scheduler_address.replace("tcp://", "dask://")
        with open_map(2, spec) as run:
            assert list(run(double, [1, 2])) == [2, 4]
