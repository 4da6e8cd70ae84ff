"""Texts that fit a line of the terminal."""

import pytest
from rich.cells import cell_len

from tracelab.render.text.wrapping import paragraph, shorten_middle, wrap


class TestFitting:
    @pytest.mark.parametrize(
        ("text", "room", "shortened"),
        [
            ("abcdefghij", 10, "abcdefghij"),
            ("abcdefghij", 7, "abc…hij"),
            ("abcdefghij", 6, "abc…ij"),
            ("abcdefghij", 1, "…"),
            ("模型模型模型", 8, "模型…型"),
            ("", 5, ""),
        ],
    )
    def test_shorten_middle(self, text, room, shortened):
        assert shorten_middle(text, room) == shortened

    def test_wrap_keeps_a_number_with_its_unit(self):
        # GIVEN a sentence that would be cut before "ms", "%" and "0"
        text = "It was busy 98.8 % of 16.68 ms (and GPU 0 of 12.3 %)."
        # WHEN it is wrapped at any width
        # THEN no line begins with the second half of a pair
        for room in range(10, 60):
            lines = wrap(text, room)
            assert " ".join(lines) == text
            assert not [x for x in lines if x.startswith(("%", "ms", "0"))]
            assert all(cell_len(line) <= room for line in lines)

    def test_wrap_cuts_what_is_longer_than_a_line(self):
        assert wrap("a bbbbbbbb c", 5) == ["a", "bbbbb", "bbb c"]

    def test_wrap_of_nothing_is_nothing(self):
        assert wrap("", 10) == []

    def test_a_paragraph_that_is_cut_says_so_within_its_room(self):
        for room in range(7, 30):
            lines = paragraph("the host waits for the GPU in every step", room, 2)
            assert len(lines) <= 2
            assert all(cell_len(line) <= room for line in lines)
            assert (lines[-1][-1] == "…") == (room < 21)
