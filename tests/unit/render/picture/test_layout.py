"""Where the lanes stand."""

from tracelab.render.picture.layout import lane_tops


def test_lanes_of_a_device_stand_closer_than_devices():
    first, second, third = lane_tops([0, 0, 1], 40)
    assert first == 0
    assert 40 < second < third - second
