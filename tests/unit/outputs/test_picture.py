import shutil
from pathlib import Path

import pytest
from matplotlib.text import Text

import tracelab
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.options import Options
from tracelab.read.sources import find_sources
from tracelab.report.headline import headline_of
from tracelab.report.views import ranks_of

TRACE = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_synchronize.pt.trace.json.gz"


@pytest.fixture(scope="module")
def analysis():
    [source] = find_sources([str(TRACE)])
    return analyze_source(source)


def test_a_file_and_its_analysis_give_the_same_picture(analysis):
    drawn = tracelab.draw(TRACE)._repr_png_()
    assert drawn == tracelab.draw(analysis)._repr_png_() == tracelab.draw(str(TRACE))._repr_png_()


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("new/a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_picture_is_written(analysis, tmp_path, name, start):
    tracelab.draw(analysis, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_picture_shows_what_is_asked_for(analysis):
    def words(**settings):
        figure = tracelab.draw(analysis, **settings).figure
        return [text.get_text() for text in figure.findobj(Text)]

    assert TRACE.name in words()
    assert "my step" in words(title="my step")
    assert "stream 13" in words()
    assert "stream 13" not in words(lanes=["stream:0/7"])
    wide, narrow = (tracelab.draw(analysis, width_px=x).figure.bbox.width for x in (1600, 800))
    assert (wide, narrow) == (1600, 800)


def test_one_step_or_a_stretch_of_it_can_be_drawn():
    step = tracelab.draw(TRACE, options=Options(step=4))
    part = tracelab.draw(TRACE, options=Options(step=4), start_ms=0.5, end_ms=1)
    assert step._repr_png_() != part._repr_png_()


@pytest.mark.parametrize(
    ("stretch", "message"),
    [
        ({"start_ms": -1}, "nothing to draw between -1 ms"),
        ({"start_ms": 2, "end_ms": 1}, "nothing to draw between 2 ms and 1 ms"),
        ({"start_ms": 1e6}, "ms long"),
        ({"end_ms": float("nan")}, "must begin and end within"),
    ],
)
def test_a_stretch_of_nothing_is_wrong_usage(analysis, stretch, message):
    with pytest.raises(UsageError, match=message):
        tracelab.draw(analysis, **stretch)


def test_a_picture_shows_one_file(tmp_path):
    for name in ("a.pt.trace.json.gz", "b.pt.trace.json.gz"):
        shutil.copy(TRACE, tmp_path / name)
    with pytest.raises(UsageError, match="holds 2 traces; name one"):
        tracelab.draw(tmp_path)
    with pytest.raises(UnreadableInputError, match="no such file"):
        tracelab.draw(tmp_path / "c.json")


def test_files_of_one_job_are_drawn_on_one_clock():
    ranks = sorted(TRACE.parent.glob("straggler_more_work_rank*"))
    figure = tracelab.draw(ranks).figure
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert "traces: 2 ranks on one clock" in texts
    assert any(text.startswith("Rank 0 makes rank 1 wait") for text in texts)
    assert tracelab.draw(ranks, title="mine").figure.findobj(
        lambda x: isinstance(x, Text) and x.get_text() == "mine"
    )


def test_files_of_no_job_are_drawn_one_above_the_other():
    figure = tracelab.draw([TRACE, TRACE.with_name("events_item.pt.trace.json.gz")]).figure
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert {TRACE.name, "events_item.pt.trace.json.gz"} <= set(texts)


def shares_of(figure):
    """The busy share of each GPU in a picture, and what each is of."""
    texts = [text.get_text() for text in figure.findobj(Text)]
    of = [text.partition("busy share of ")[2] for text in texts]
    return [text for text in texts if text.startswith("busy ")], list(filter(None, of))


def test_busy_shares_are_those_of_the_report_unless_a_part_is_chosen(analysis):
    headline = headline_of(ranks_of(analysis.report)[0])
    printed = [f"busy {100 * headline.busy_share:.0f} %"]
    assert shares_of(tracelab.draw(analysis).figure) == (printed, ["the steady steps"])
    assert shares_of(tracelab.draw(analysis, lanes="host").figure) == ([], [])
    for part in ({"start_ms": 1}, {"end_ms": 1}):
        assert shares_of(tracelab.draw(analysis, **part).figure)[1] == ["the shown time"]
    step = tracelab.draw(TRACE, options=Options(step=4)).figure
    assert shares_of(step)[1] == ["step 4"]


def test_a_picture_of_a_file_neither_replays_nor_finds(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    for name in ("find_baseline", "what_ran", "rank_part", "critical_paths"):
        module = "measures.measured" if name == "critical_paths" else "analysis.analysis"
        monkeypatch.setattr(f"tracelab.{module}.{name}", refuse)
    assert tracelab.draw(TRACE, options=Options(cache=False)).png()
