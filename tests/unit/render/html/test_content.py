"""Tables of the text report as the page shows them."""

from __future__ import annotations

from tracelab.render.html.content import table_of
from tracelab.render.section import PART, Column, Fit, Section
from tracelab.render.words import bytes_text, count_text, percent_text, time_text

GEMM = "void at::native::gemm<float, at::native::Add<float>, at::native::Aligned<4>>(int, float*)"
GEMM_OF_HALF = GEMM.replace("float", "at::Half")


def table(columns, *rows):
    return table_of(Section("", columns=tuple(columns), rows=rows))


def test_a_long_name_of_cpp_is_what_people_call_it():
    [[cell]] = table([Column(f"name{PART}kind", Fit.LABEL)], (f"{GEMM}{PART}compute",)).rows
    assert (cell.text, cell.more, cell.full) == ("gemm", ("compute",), GEMM)
    assert cell.is_code
    assert cell.is_head


def test_two_kernels_of_one_name_are_told_apart():
    rows = table([Column("name", Fit.LABEL)], (GEMM,), (GEMM_OF_HALF,)).rows
    assert [cell.text for [cell] in rows] == ["gemm", "gemm"]
    assert rows[0][0].rest.startswith("…float, at::native::Add<float>")
    assert rows[1][0].rest.startswith("…at::Half, ")


def test_names_that_differ_late_are_told_apart_by_what_differs():
    names = [
        GEMM,
        GEMM.replace("float*)", f"{'int, ' * 80}float*)"),
        f"void gemm<1>({'int, ' * 9}int)",
    ]
    names.append(names[1].replace("float*)", "double*)"))
    rows = table([Column("name", Fit.LABEL)], *zip(names, strict=True)).rows
    assert {cell.text for [cell] in rows} == {"gemm"}
    assert rows[3][0].rest == "…double*)"
    assert len({cell.rest for [cell] in rows}) == 4


def test_one_kernel_in_two_rows_is_written_once_in_each():
    rows = table([Column("name", Fit.LABEL)], (GEMM,), (GEMM,)).rows
    assert [cell.rest for [cell] in rows] == ["", ""]


def test_a_rounded_figure_has_the_exact_one():
    columns = [Column("name", Fit.LABEL), *map(Column, ("time", "of GPU", "count", "size"))]
    figures = (time_text(795_396), percent_text(1, 3), count_text(15.4), bytes_text(1536))
    exact_figures = (time_text(812), percent_text(0, 3), count_text(40), bytes_text(4))
    rows = table(columns, ("a", *figures), ("b", *exact_figures)).rows
    assert [[cell.exact for cell in row[1:]] for row in rows] == [
        ["795,396 ns", "33.3333 %", "", "1,536 B"],
        ["", "", "", ""],
    ]


def test_endless_names_are_cut():
    [[cell]] = table([Column("name", Fit.LABEL)], ("x" * 5_000,)).rows
    assert len(cell.text) == 60
    assert len(cell.full) == 300


def test_words_in_a_column_of_numbers_begin_at_the_left():
    content = table(
        [Column("rank"), Column("kind"), Column("micro-\nbatch"), Column("a step\nwithout it")],
        ("0", "compute", "1.2 ms", "2 ms"),
        ("1", "comm", "3.4 ms", ""),
    )
    assert content.titles == (
        ("rank", ""),
        ("kind", "words"),
        ("microbatch", ""),
        ("a step without it", ""),
    )
    assert [row[1].kind for row in content.rows] == ["compute", "comm"]


def test_shares_have_a_bar():
    columns = [Column("cause", Fit.LABEL), Column("of idle")]
    rows = table(columns, ("data loading", "69.8 %"), ("launch", "<0.1 %"), ("edge", "0 %")).rows
    assert [(cause.kind, share.share) for cause, share in rows] == [
        ("input", "69.8"),
        ("launch", "0.1"),
        ("edge", ""),
    ]
