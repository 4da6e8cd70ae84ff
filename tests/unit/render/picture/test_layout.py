"""Where the lanes stand."""

from tracelab.render.picture.layout import lane_tops
from tracelab.render.picture.rows import Band, Row


def make_lane(device, bands=1):
    """A lane with nothing in it."""
    parts = tuple(Band(i / bands, (i + 1) / bands, 0.1, ()) for i in range(bands))
    return Row("stream 7", device, 0, parts)


def test_lanes_of_a_device_stand_closer_than_devices():
    first, second, third = lane_tops([make_lane(0), make_lane(0), make_lane(1)], 40)
    assert first == 0
    assert 40 < second < third - second


def test_a_lane_is_as_high_as_its_bands_need():
    few, many, last = lane_tops([make_lane(0, 2), make_lane(0, 30), make_lane(0)], 40)
    assert many - few < 50
    assert last - many >= 30 * 8
