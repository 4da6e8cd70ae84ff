"""The legend."""

from tests.build.pictures import MS, draw


def test_the_legend_lists_what_occurs_and_nothing_else(timeline):
    legend = [text.get_text() for text in draw(timeline).legends[0].get_texts()]
    assert legend == [
        "compute",
        "communication",
        "copy",
        "blocking call",
        "launch call",
        "step on the CPU",
        "idle (no stream busy)",
    ]
    only = draw(timeline, lanes=["kind:comm"], start_ns=35 * MS, end_ns=45 * MS)
    assert [text.get_text() for text in only.legends[0].get_texts()] == ["communication"]
