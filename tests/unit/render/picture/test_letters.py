"""Texts that the font has letters for, cut to their room."""

from tracelab.render.picture.letters import fit, printable, text_width


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
