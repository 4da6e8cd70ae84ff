"""Files of pictures."""

import re
import zlib
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from tests.build.pictures import COPY, GEMM, MS, draw, make_trace, on_gpu, scene
from tracelab.base.errors import OutputError, UsageError
from tracelab.model.timeline import build_timeline
from tracelab.render.picture.save import Picture
from tracelab.render.picture.timeline import Part, draw_timelines
from tracelab.render.scene import Span


@pytest.mark.parametrize(
    ("name", "head"),
    [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF-"), ("A.PNG", b"\x89PNG")],
)
def test_the_ending_says_the_format_and_a_picture_is_reproducible(timeline, tmp_path, name, head):
    Picture(draw(timeline), tuple).save(tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(head)
    with mpl.rc_context(
        {
            "font.size": 30,
            "axes.facecolor": "red",
            "savefig.bbox": "tight",
            "savefig.dpi": 40,
            "svg.fonttype": "path",
            "hatch.linewidth": 5,
            "figure.autolayout": True,
        }
    ):
        Picture(draw(timeline), tuple).save(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.png.gz"])
def test_another_format_is_refused(timeline, tmp_path, name):
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        Picture(draw(timeline), tuple).save(tmp_path / name)


def test_a_file_that_cannot_be_written_is_said(timeline, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"^cannot write .*: file exists$"):
        Picture(draw(timeline), tuple).save(tmp_path / "file" / "a.png")


def test_hostile_names_are_only_text(tmp_path):
    name = "$\\frac{1}{0}$ --> </text><script>&\x1b[31m \ud800 漢"
    timeline = build_timeline(make_trace(on_gpu(name, 0, 100)))
    figure = draw(timeline, title=name)
    for ending in ("png", "svg", "pdf"):
        Picture(figure, tuple).save(tmp_path / f"a.{ending}")
    assert "<script>" not in (tmp_path / "a.svg").read_text()


def test_letters_stay_letters_in_svg_and_pdf(timeline):
    picture = Picture(draw(timeline), tuple)
    svg = ElementTree.fromstring(picture.svg())
    written = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"cudaDeviceSynchronize", "gemm_$x_$", "stream 7", "GPU 0", "compute"} <= written
    pdf = picture.pdf()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    unpacked = b"".join(zlib.decompress(x) for x in streams if x.startswith(b"x"))
    assert b"/Type42" in pdf + unpacked or b"/CIDFontType2" in pdf + unpacked
    assert b"/Type3" not in pdf + unpacked


SVG = "{http://www.w3.org/2000/svg}"


def tips_of(picture):
    """What an SVG file says of each place, with the place in pixels."""
    svg = ElementTree.fromstring(picture.svg())
    [tips] = [group for group in svg.iter(f"{SVG}g") if group.get("id") == "tips"]
    return [
        (
            place.findtext(f"{SVG}title"),
            [float(place.get(x)) * 128 / 72 for x in ("x", "y", "width", "height")],
        )
        for place in tips
    ]


def test_an_svg_says_of_each_span_its_name_its_time_and_what_it_cost_or_waited_for(timeline):
    picture = draw_timelines([Part(scene(timeline), Span(0, 100 * MS))])
    tips = dict(tips_of(picture))
    assert f"{GEMM}  ·  40.00 ms from 0" in tips
    assert f"idle: blocking call  ·  10.00 ms from 50.00 ms  ·  before {COPY}" in tips
    [blocked] = [x for x in tips if x.startswith("cudaDeviceSynchronize")]
    assert blocked.endswith("50.00 ms from 10.00 ms  ·  a GPU was idle 15.00 ms because of it")
    left, top, width, height = tips[f"{GEMM}  ·  40.00 ms from 0"]
    (shape,) = [c for c in picture.figure.axes[0].collections if c.get_gid() == "compute"]
    box = shape.get_paths()[0].get_extents(picture.figure.axes[0].transData)
    assert (left, width) == (pytest.approx(box.x0, abs=0.1), pytest.approx(box.width, abs=0.1))
    assert top == pytest.approx(picture.figure.bbox.height - box.y1, abs=0.1)
    assert height == pytest.approx(box.height, abs=0.1)
    part = draw_timelines([Part(scene(timeline), Span(60 * MS, 100 * MS))])
    assert [x for x, _ in tips_of(part) if x.startswith(COPY)] == [
        f"{COPY}  ·  30.00 ms from 70.00 ms"
    ]


def test_tips_are_bounded_and_hold_hostile_names_as_text():
    name = "</title><script>&\x1b[31m \ud800"
    events = [on_gpu(name, i / 1000, i / 1000 + 40) for i in range(5000)]
    timeline = build_timeline(make_trace(*events))
    picture = draw_timelines([Part(scene(timeline), Span(0, 50 * MS))])
    tips = tips_of(picture)
    assert 1 <= len(tips) <= 1330
    assert "</title><script>&\\u001b[31m \\ud800" in tips[0][0]
    assert b"<script>" not in picture.svg()
