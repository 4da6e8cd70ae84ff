"""Files of pictures."""

import re
import zlib
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from tests.build.pictures import draw, make_trace, on_gpu
from tracelab.base.errors import OutputError, UsageError
from tracelab.model.timeline import build_timeline
from tracelab.render.picture.save import Picture


@pytest.mark.parametrize(
    ("name", "head"),
    [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF-"), ("A.PNG", b"\x89PNG")],
)
def test_the_ending_says_the_format_and_a_picture_is_reproducible(timeline, tmp_path, name, head):
    Picture(draw(timeline)).save(tmp_path / name)
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
        Picture(draw(timeline)).save(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.png.gz"])
def test_another_format_is_refused(timeline, tmp_path, name):
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        Picture(draw(timeline)).save(tmp_path / name)


def test_a_file_that_cannot_be_written_is_said(timeline, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"^cannot write .*: file exists$"):
        Picture(draw(timeline)).save(tmp_path / "file" / "a.png")


def test_hostile_names_are_only_text(tmp_path):
    name = "$\\frac{1}{0}$ --> </text><script>&\x1b[31m \ud800 漢"
    timeline = build_timeline(make_trace(on_gpu(name, 0, 100)))
    figure = draw(timeline, title=name)
    for ending in ("png", "svg", "pdf"):
        Picture(figure).save(tmp_path / f"a.{ending}")
    assert "<script>" not in (tmp_path / "a.svg").read_text()


def test_letters_stay_letters_in_svg_and_pdf(timeline):
    picture = Picture(draw(timeline))
    svg = ElementTree.fromstring(picture.svg())
    written = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"cudaDeviceSynchronize", "gemm_$x_$", "stream 7", "GPU 0", "compute"} <= written
    pdf = picture.pdf()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    unpacked = b"".join(zlib.decompress(x) for x in streams if x.startswith(b"x"))
    assert b"/Type42" in pdf + unpacked or b"/CIDFontType2" in pdf + unpacked
    assert b"/Type3" not in pdf + unpacked
