"""TL901: damage."""

from tests.build.files import US, kernel, text
from tests.unit.findings.hand_made import clean
from tracelab.findings.finding import INFO, WARNING


def test_broken_off_file_is_damaged(tmp_path, lacks_of_files):
    path = tmp_path / "cut.json"
    path.write_bytes(text([*clean(), kernel(300 * US, 305 * US, "lost")])[:-40])

    assert lacks_of_files(str(path)) == [("TL901", WARNING, 1)]


def test_every_event_that_was_left_out_counts_as_damage(lacks):
    nameless = {
        key: value for key, value in kernel(300 * US, 305 * US, "k").items() if key != "name"
    }
    odd = kernel(300 * US, 305 * US, "k") | {"ph": "?"}

    assert lacks(*clean(), nameless, odd, odd) == [("TL901", WARNING, 3)]


def test_damage_that_was_mended_is_only_mentioned(tmp_path, lacks_of_files):
    path = tmp_path / "nan.json"
    events = clean()
    events[2]["args"]["occupancy"] = 12345
    path.write_bytes(text(events).replace(b"12345", b"nan"))

    assert lacks_of_files(str(path)) == [("TL901", INFO, 1)]
