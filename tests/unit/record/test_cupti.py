import pytest

from tracelab.record import collector

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize(
    ("version", "lost"), [(None, False), ("12.8", False), ("12.9", True), ("13.0", True)]
)
def test_records_are_lost_from_cuda_12_9_on(monkeypatch, version, lost):
    monkeypatch.setattr(torch.version, "cuda", version)
    assert collector.kineto_loses_records() is lost


@pytest.mark.skipif(collector._loaded_cupti() is not None, reason="torch has loaded CUPTI here")
def test_without_cupti_the_records_stay_off_silently():
    assert collector.switch_event_records(on=True) is False
