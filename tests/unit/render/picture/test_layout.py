"""The lanes, the letters that fit into them, and the legend."""

from tests.build.pictures import MS, draw
from tracelab.render.picture.layout import (
    fit,
    lane_tops,
    legend_columns,
    legend_entries,
    printable,
    text_width,
    wrap,
)
from tracelab.render.picture.rows import Band, Row


def make_lane(device, bands=1):
    """A lane with nothing in it."""
    parts = tuple(Band(i / bands, (i + 1) / bands, 0.1, ()) for i in range(bands))
    return Row("stream 7", device, 0, parts, min_px=8 * bands)


def test_lanes_of_a_device_stand_closer_than_devices():
    first, second, third = lane_tops([make_lane(0), make_lane(0), make_lane(1)], 40)
    assert first == 0
    assert 40 < second < third - second


def test_a_lane_is_as_high_as_its_bands_need():
    few, many, last = lane_tops([make_lane(0, 2), make_lane(0, 30), make_lane(0)], 40)
    assert many - few < 50
    assert last - many >= 30 * 8


def test_the_legend_lists_what_occurs_and_nothing_else(timeline):
    legend = [text.get_text() for text in draw(timeline).legends[0].get_texts()]
    assert legend == [
        "compute",
        "communication",
        "copy",
        "blocking call",
        "launch call",
        "step on the CPU",
        "CPU-bound",
    ]
    only = draw(timeline, lanes=["kind:comm"], start_ns=35 * MS, end_ns=45 * MS)
    assert [text.get_text() for text in only.legends[0].get_texts()] == ["communication"]


def test_kinds_that_look_alike_share_an_entry_of_the_legend():
    alike = legend_entries({"forward", "compute", "host_blocked", "blocking", "copy"})
    assert alike == [
        ("compute", "compute / forward"),
        ("copy", "copy"),
        ("blocking", "blocking call"),
    ]


def test_a_legend_has_as_many_columns_as_fit():
    labels = ["compute", "a label that is longer than all", "copy", "memset", "idle"]
    widths = [text_width(label, 14) + 60 for label in labels]
    assert legend_columns(labels, sum(widths)) == 5
    assert legend_columns(labels, sum(widths) - 1) == 4
    assert legend_columns(labels, max(widths)) == legend_columns(labels, 10) == 1
    assert legend_columns([], 100) == 1


def test_letters_that_the_font_lacks_become_question_marks():
    assert printable("µs → 漢\x00\n$a$") == "µs → ???$a$"


def test_a_text_is_cut_to_its_room():
    whole = "vectorized_elementwise_kernel"
    assert fit(whole, 500, 12) == whole
    cut = fit(whole, 100, 12)
    assert cut.endswith("…")
    assert whole.startswith(cut[:-1])
    assert text_width(cut, 12) <= 100
    assert fit(whole, 30, 12) == ""


def test_a_headline_is_cut_only_at_its_end():
    text = "Fixes: 31.6 -> 22.9 ms: together they save 28 %. First: empty_cache() returns memory."
    lines = wrap(text, 300, 20, "bold", 2)
    assert lines[0].startswith("Fixes: 31.6 -> 22.9 ms")
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(text_width(line, 20, "bold") <= 300 for line in lines)
    assert " ".join(wrap(text, 1000, 20, "bold", 2)) == text
