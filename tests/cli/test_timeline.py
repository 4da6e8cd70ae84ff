from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"


@pytest.mark.parametrize(
    ("name", "magic"), [("t.png", b"\x89PNG"), ("t.svg", b"<?xml"), ("t.pdf", b"%PDF")]
)
def test_picture_has_the_format_of_its_name(tracelab, tmp_path, name, magic):
    ran = tracelab("timeline", ITEM, "--output", tmp_path / name)
    assert ran.code == 0
    assert ran.out == ""
    assert name in ran.err
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_part_of_a_step_and_some_lanes(tracelab, tmp_path):
    ran = tracelab(
        "timeline", ITEM, "-o", tmp_path / "t.svg", "--step", 2, "--from", 0.5, "--to", 1.5,
        "--lanes", "host,stream:0/7",
    )  # fmt: skip
    assert ran.code == 0
    drawn = (tmp_path / "t.svg").read_text()
    assert "stream 7" in drawn
    assert "stream 13" not in drawn


def test_unknown_lane_lists_the_lanes_that_there_are(tracelab, tmp_path):
    ran = tracelab("timeline", ITEM, "-o", tmp_path / "t.png", "--lanes", "stream:0/99")
    assert ran.code == 2
    assert "stream:0/13" in ran.err


def test_empty_range_is_wrong_usage(tracelab, tmp_path):
    ran = tracelab("timeline", ITEM, "-o", tmp_path / "t.png", "--from", 5, "--to", 5)
    assert ran.code == 2


def test_folder_of_several_traces_is_wrong_usage(tracelab, tmp_path):
    ran = tracelab("timeline", TRACES, "-o", tmp_path / "t.png")
    assert ran.code == 2
    assert f"{len(list(TRACES.glob('*.gz')))} traces" in ran.err


@pytest.mark.parametrize("option", ["--from", "--to"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_range_must_be_finite(tracelab, tmp_path, option, value):
    ran = tracelab("timeline", ITEM, "-o", tmp_path / "t.png", option, value)
    assert ran.code == 2
    assert "milliseconds" in ran.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--width", 10_000_000),
            "a timeline's width is 400 to 16,384 pixels, not 10,000,000",
        ),
        (("--width", 399), "a timeline's width is 400 to 16,384 pixels, not 399"),
        (("--width", -1), "a timeline's width is 400 to 16,384 pixels, not -1"),
        (("--height", 100), "a timeline's height is 200 to 16,384 pixels, not 100"),
        (("--lanes", "foo"), "there is no lane 'foo'; lanes are host, device:0"),
        (("--from", "nan"), "milliseconds"),
        (("-o", "t.bmp"), "a timeline is written as .png, .svg or .pdf"),
    ],
)
def test_limits_are_checked_before_the_trace_is_read(tracelab, tmp_path, options, sentence):
    broken = tmp_path / "broken.json"
    broken.write_text("no trace: nobody should have looked")
    ran = tracelab("timeline", broken, *options)
    assert (ran.code, sentence in ran.err) == (2, True)


def test_the_widest_picture_is_drawn(tracelab, tmp_path):
    picture = tmp_path / "wide.png"
    ran = tracelab("timeline", ITEM, "-o", picture, "--width", 16_384)
    assert ran.code == 0
    assert int.from_bytes(picture.read_bytes()[16:20], "big") == 16_384


@pytest.mark.parametrize(
    "options",
    [("--to", "1e300"), ("--to", "1e13"), ("--from", "-1e300"), ("--from", "1e11", "--to", "1e12")],
)
def test_times_far_away_are_wrong_usage(tracelab, tmp_path, options):
    ran = tracelab("timeline", ITEM, "-o", tmp_path / "t.png", *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert not (tmp_path / "t.png").exists()


def test_look_title_and_finding(tracelab, tmp_path):
    sinful = TRACES / "train_step_sinful.pt.trace.json.gz"
    ran = tracelab(
        "timeline", sinful, "-o", tmp_path / "t.svg", "--title", "my <step>", "--dark",
        "--height", 900, "--finding", 1,
    )  # fmt: skip
    assert ran.code == 0
    drawn = (tmp_path / "t.svg").read_text()
    assert "my &lt;step&gt;" in drawn
    assert 'height="506.25pt"' in drawn  # 900 pixels, 128 to an inch
    ran = tracelab("timeline", sinful, "-o", tmp_path / "u.png", "--finding", 99)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "there is no finding 99" in ran.err
    for step in ("99", "few"):
        assert tracelab("timeline", ITEM, "-o", tmp_path / "u.png", "--step", step).code == 2
    assert not (tmp_path / "u.png").exists()
