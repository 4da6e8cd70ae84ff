"""Texts that fit a line of the terminal."""

import pytest
from rich.cells import cell_len

from tracelab.render.text.wrapping import first_clause, paragraph, shorten_middle, wrap


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


class TestFirstClause:
    def test_what_fits_stays(self):
        assert first_clause("Read it later.", 14) == "Read it later."

    @pytest.mark.parametrize(
        ("text", "shortened"),
        [
            # between clauses
            ("Launch less, or ahead: replay the step, fuse", "Launch less, or ahead…"),
            # not inside of brackets, but before them
            ("Replay the whole step (with `a`, `b`) instead", "Replay the whole step…"),
            # not inside of code
            ("Use the one function `f(a, b)` as it is there", "Use the one function `f(a, b)`…"),
            # where the first clause says nothing, between words
            ("No: this one here is a long explanation of it", "No: this one here is a long…"),
        ],
    )
    def test_ends_after_a_whole_clause(self, text, shortened):
        assert first_clause(text, 32) == shortened
