from pathlib import Path

import pytest

from tests.build.expectations import check_report
from tracelab import analyze

TRACES = Path(__file__).parents[3] / "traces"


@pytest.fixture(scope="module")
def report():
    """Two streams, one after the other; the host waits five times."""
    return analyze(str(TRACES / "events_item.pt.trace.json.gz"))


PAIR = {"a": "stream:0/7", "b": "stream:0/13"}


@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        (
            {"overlap": [{**PAIR, "least": 0, "most": 0}]},
            {"overlap": [{**PAIR, "least": 0.1, "most": 1}]},
        ),
        ({"streams": [0, 0]}, {"streams": [0.5, 1]}),
        ({"busy": [0.9, 1]}, {"busy": [0, 0.5]}),
        ({"comm": [0, 0]}, {"comm": [0.1, 1]}),
        ({"exposed_comm": [0, 0]}, {"exposed_comm": [0.1, 1]}),
        ({"blocking": {"cudaStreamSynchronize": 5}}, {"blocking": {}}),
        ({"blocking_least": {"cudaStreamSynchronize": 5}}, {"blocking_least": {"cudaFree": 1}}),
        ({"caused_idle_us": 100}, {"caused_idle_us": 100_000}),
        ({"causes": {"launch": 0.1}}, {"causes": {"graph": 0.1}}),
        ({"waits_named": True}, {"waits_named": False}),
        ({"findings": []}, {"findings": [["TL101", "host_sync"]]}),
        ({"findings": []}, {"findings": [["TL101", "event_wait"]]}),
        ({"reported": {"TL101": "read_a_value"}}, {"reported": {"TL101": "collate"}}),
        ({"reported": {"TL101": None}}, {"reported": {"TL306": None}}),
        ({"remedies": ["scalar-read"]}, {"remedies": []}),
        ({"tells": "scalar-read"}, {"tells": "boolean-mask"}),
        ({"tells": "TL101"}, {"tells": "TL306"}),
    ],
    ids=lambda expect: next(iter(expect)),
)
def test_each_check_can_pass_and_can_fail(report, passing, failing):
    assert [check.passed for check in check_report(report, passing)] == [True]
    assert [check.passed for check in check_report(report, failing)] == [False]


def test_pair_is_found_in_either_order(report):
    turned = {"a": PAIR["b"], "b": PAIR["a"], "least": 0, "most": 0}
    assert check_report(report, {"overlap": [turned]})[0].passed


def test_unknown_expectation_is_an_error(report):
    with pytest.raises(KeyError):
        check_report(report, {"buzy": [0, 1]})
