"""The sections about what ran, and the sentence about a busy GPU."""

from dataclasses import replace

import pytest

from tests.build.report_rows import (
    MS,
    make_device,
    make_report,
    make_steady,
    make_trace,
    make_window,
    section_of,
    titles_of,
)
from tests.figures import figures
from tracelab.measures.work import INFERRED, KernelMetrics, KernelSums, WorkMetrics, WorkSums
from tracelab.model.arithmetic import peak_of
from tracelab.render.document import text_sections
from tracelab.render.sections.work import busy_answer
from tracelab.report.views import ranks_of, views_of

PER_STEP = ", per steady step (mean of 5)"


def make_kernel(name, total_ns, share, *, steps=5, phase="forward", kind="compute", names=1):
    sums = KernelSums(steps, 2 * (steps or 1), total_ns * (steps or 1))
    return KernelMetrics(
        0, None, name, kind, phase, names, 2.0, total_ns, total_ns // 2, share, sums
    )


def make_work(
    name,
    *,
    gpu_ns=0,
    gpu_share=0.0,
    where=None,
    calls=None,
    launches=2.0,
    steps=5,
    unprofiled=None,
    **of_graphs,
):
    sums = WorkSums(steps, None, 10, 5 * MS, 5 * gpu_ns, 0)
    figures = (MS, gpu_ns, 0, 0.25, gpu_share, sums, unprofiled)
    return WorkMetrics(0, None, name, where, 1, calls, launches, *figures, **of_graphs)


KERNELS = (
    make_kernel("void at::gemm<float>(float*)", 6 * MS, 0.6, phase="backward"),
    make_kernel("add", 3 * MS, 0.3),
    make_kernel("others", MS, 0.1, kind=None, phase=None, names=7),
)
PHASES = (
    make_work("forward", gpu_ns=3 * MS, gpu_share=0.3),
    make_work("backward", gpu_ns=6 * MS, gpu_share=0.6, launches=2.4),
)


def report_of(**tables):
    return make_report(make_window(make_device()), **tables)


def test_kernels_are_shown_with_the_number_of_those_left_out(snapshot):
    section = section_of(report_of(kernels=KERNELS), f"Kernels{PER_STEP}", top=1)

    [row] = section.rows
    assert row == (
        "void at::gemm<float>(float*) · compute",
        "2",
        "6.00 ms",
        "3.00 ms",
        "60.0 %",
        "backward",
    )
    assert figures(section.notes) == ["8", "40.0 %"]
    assert section.notes == snapshot


def test_all_rows_are_shown_where_there_are_no_more():
    section = section_of(report_of(kernels=KERNELS), f"Kernels{PER_STEP}", top=3)

    assert (len(section.rows), section.notes) == (3, ())


def test_phases_say_what_is_inferred():
    rows = (make_work("forward", where=INFERRED), PHASES[1])
    section = section_of(report_of(phases=rows), f"Phases{PER_STEP}")

    assert [row[:3] for row in section.rows] == [
        ("forward", "2", "1.00 ms"),
        ("backward", "2.4", "1.00 ms"),
    ]
    assert "does not mark the forward pass" in section.notes[0]


def test_phases_that_the_file_does_not_mark_say_how_to_mark_them():
    section = section_of(report_of(phases=(make_work("other"),)), f"Phases{PER_STEP}")

    assert "record_function" in section.notes[0]


def test_operators_are_shown_with_their_phase():
    rows = (make_work("aten::mm", where="forward", calls=12.0, gpu_ns=MS, gpu_share=1.0),)
    section = section_of(report_of(operators=rows), f"Operators{PER_STEP}")

    assert section.rows == (("aten::mm · forward", "12", "2", "1.00 ms", "1.00 ms", "0"),)


def test_host_time_without_the_profiler_is_shown_where_it_is_known():
    rows = (make_work("aten::mm", where="forward", calls=12.0, unprofiled=MS // 2),)
    section = section_of(report_of(operators=rows), f"Operators{PER_STEP}")

    assert [column.title for column in section.columns][3:5] == ["CPU", "without\nprofiler"]
    assert section.rows == (("aten::mm · forward", "12", "2", "1.00 ms", "500.0 µs", "0", "0"),)


def test_lines_are_shown_by_their_place(snapshot):
    rows = (
        make_work("step", where="train.py:40"),
        make_work("item in step", where="train.py"),
        make_work("outside any function"),
    )
    operators = (make_work("aten::mm", calls=1.0),)
    section = section_of(report_of(operators=operators, lines=rows), f"Lines{PER_STEP}", top=2)

    assert [row[0] for row in section.rows] == ["train.py:40 · step", "train.py · item in step"]
    assert figures(section.notes) == ["1", "25.0 %", "0 %"]
    assert section.notes == snapshot


def test_without_stacks_the_lines_say_how_to_get_them():
    report = report_of(operators=(make_work("aten::mm", calls=1.0),), lines=(), modules=())
    section = section_of(report, f"Lines{PER_STEP}")

    assert section.rows == ()
    assert "with_stack=True" in section.lines[0]


def test_modules_of_a_class_are_shown_together():
    rows = (
        make_work("Linear_3", where="Net_0 > Block_1", calls=1.0),
        make_work("Linear_0", where="Net_0 > Block_0", calls=2.0),
        make_work("Linear_9", where="Net_0", calls=1.0),
        make_work("outside any module", launches=0.0),
    )
    section = section_of(report_of(modules=rows), f"Modules{PER_STEP}")

    assert section.rows == (
        ("2 Linear · Net > Block", "3", "4", "2.00 ms", "0", "0"),
        ("Linear · Net", "1", "2", "1.00 ms", "0", "0"),
        ("outside any module", "", "0", "1.00 ms", "0", "0"),
    )


def test_report_of_an_older_version_has_none_of_these_sections():
    titles = titles_of(report_of())

    assert not any(
        title.startswith(("Kernels", "Operators", "Phases", "Lines", "Modules")) for title in titles
    )


def test_busy_gpu_is_answered_with_its_kernel_and_phase(snapshot):
    [view] = views_of(report_of(kernels=KERNELS, phases=PHASES))

    assert figures(busy_answer(view)) == ["60 %", "30 %", "60 %"]
    assert busy_answer(view) == snapshot


@pytest.mark.parametrize(
    ("kernel_rows", "answer"),
    [
        (
            (make_kernel("softmax", MS, 1.0, phase="other"),),
            "GPU time: softmax and loss 100 %; `softmax` 100 %.",
        ),
        (
            (
                make_kernel("ampere_sgemm_128x64_tn", 3 * MS, 0.3),
                make_kernel("ncclAllReduce", 2 * MS, 0.2, kind="comm"),
                make_kernel("nvjet_tst_64x8", MS, 0.1),
            ),
            "GPU time: matrix products 40 %, communication 20 %; "
            "`ampere_sgemm_128x64_tn` (forward) 30 %.",
        ),
        (
            (make_kernel("vectorized_elementwise_kernel", MS, 0.25),),
            "GPU time: elementwise operations 25 %; `vectorized_elementwise_kernel` (forward) "
            "25 %. `torch.compile(model)` fuses elementwise operations.",
        ),
        (
            (
                make_kernel("vectorized_elementwise_kernel", MS, 0.24),
                make_kernel("triton_poi_fused_add_0", MS, 0.24),
            ),
            "GPU time: elementwise operations 48 %; `vectorized_elementwise_kernel` (forward) "
            "24 %.",
        ),
        ((), ""),
    ],
    ids=["without phases", "kinds", "elementwise", "compiled", "without kernels"],
)
def test_busy_answer_says_no_more_than_is_known(kernel_rows, answer):
    [view] = views_of(report_of(kernels=kernel_rows))

    assert busy_answer(view) == answer


def test_rows_say_how_they_are_known_to_be_where_a_graph_was_captured(snapshot):
    rows = (
        make_work("forward", where="model.py:7", gpu_ns=MS, replayed_ns=MS, replay_basis="capture"),
        make_work("loss", where="model.py:9", gpu_ns=MS, replayed_ns=MS, replay_basis="annotation"),
        make_work("serve", where="serve.py:3"),
    )
    operators = (make_work("aten::mm", calls=1.0),)
    section = section_of(report_of(operators=operators, lines=rows), f"Lines{PER_STEP}")

    assert [row[0] for row in section.rows] == snapshot
    assert "where their nodes were captured" in section.notes[0]


def test_what_counts_where_is_said_below_the_first_table_alone():
    row = make_work("forward", calls=1.0, gpu_ns=MS, replayed_ns=MS, replay_basis="capture")
    tables = {"operators": (row,), "lines": (row,), "modules": (row,)}

    def saying(report):
        [rank] = ranks_of(report)
        sections = text_sections(rank, rank.main, 9)
        return [
            section.title.partition(",")[0]
            for section in sections
            if any("where their nodes were captured" in note for note in section.notes)
        ]

    assert saying(report_of(phases=(row,), **tables)) == ["Phases"]
    assert saying(report_of(phases=(make_work("forward"),), **tables)) == ["Lines"]
    # Lines are not shown without operators.
    assert saying(report_of(lines=(row,), modules=(row,))) == ["Modules"]


def test_modules_of_a_class_are_known_as_the_least_sure_one_is():
    rows = (
        make_work("Linear_3", calls=1.0, replayed_ns=MS, replay_basis="annotation"),
        make_work("Linear_0", calls=2.0, replayed_ns=MS, replay_basis="capture"),
        make_work("Linear_1", calls=2.0),
    )
    section = section_of(report_of(modules=rows), f"Modules{PER_STEP}")

    assert [row[0] for row in section.rows] == ["3 Linear · captured here"]


RATES = {"flops": 6 * 10**12, "flop_rate": 6.234e14, "peak_share": 0.63, "byte_rate": 1.03e12}


def test_rates_of_kernels_say_what_they_are_of(snapshot):
    peak = peak_of("NVIDIA H200")
    traces = (make_trace(gpus={"0": "NVIDIA H200", "1": "my GPU"}, peaks={"NVIDIA H200": peak}),)
    rows = (replace(KERNELS[0], **RATES, occupancy=0.25), KERNELS[1])
    steady = (make_steady(flops=6 * 10**12, mfu=0.123, flops_known_share=0.9),)
    made = report_of(traces=traces, kernels=rows, steady=steady)
    section = section_of(made, f"Rates of kernels{PER_STEP}")
    assert section.rows == (
        ("void at::gemm<float>(float*) · compute", "623 T", "63.0 %", "1.03 T", "25.0 %"),
    )
    assert (*section.lines, *section.notes) == snapshot


def test_a_file_that_names_no_gpu_says_that_there_is_no_peak(snapshot):
    rows = (replace(KERNELS[0], **RATES | {"peak_share": None}),)
    section = section_of(report_of(kernels=rows), f"Rates of kernels{PER_STEP}")
    assert section.notes == snapshot


def test_products_without_shapes_say_how_to_record_them():
    rows = (replace(KERNELS[0], occupancy=0.25), KERNELS[1])
    section = section_of(report_of(kernels=rows), f"Rates of kernels{PER_STEP}")
    assert section.rows == (("void at::gemm<float>(float*) · compute", "25.0 %"),)
    assert "record_shapes=True" in section.notes[0]
    rows = (replace(KERNELS[1], occupancy=0.25),)
    assert section_of(report_of(kernels=rows), f"Rates of kernels{PER_STEP}").notes == ()


def test_rates_of_other_tables_are_of_what_multiplies():
    rows = (
        make_work("aten::mm", where="forward", **RATES),
        make_work("aten::add", where="forward", occupancy=0.5),
    )
    section = section_of(report_of(operators=rows), f"Rates of operators{PER_STEP}")
    assert section.rows == (("aten::mm · forward", "623 T", "63.0 %", "1.03 T"),)
    rows = (make_work("aten::add", occupancy=0.5),)
    assert f"Rates of operators{PER_STEP}" not in titles_of(report_of(operators=rows))


def test_rates_of_modules_of_one_class_are_weighted_with_their_time():
    """GIVEN 3 * 10**12 in 10 ms and 10**12 in 10 ms
    THEN both together have 4 * 10**12 in 20 ms, and the mean of their shares."""
    rows = (
        make_work("Linear_0", gpu_ns=10 * MS, flops=3 * 10**12, flop_rate=3e14, peak_share=0.3),
        make_work("Linear_1", gpu_ns=10 * MS, flops=10**12, flop_rate=1e14, peak_share=0.1),
        make_work("Linear_2", gpu_ns=10 * MS),
    )
    section = section_of(report_of(modules=rows), f"Rates of modules{PER_STEP}")
    assert section.rows == (("3 Linear", "200 T", "20.0 %"),)
