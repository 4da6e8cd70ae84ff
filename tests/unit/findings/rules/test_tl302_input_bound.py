"""TL302: the loader takes until 160 us; the next kernel is launched at 162 and begins at 165."""

import pytest

from tests.build.files import US, annotation, operator, python
from tests.build.finding_events import LOADER, OTHER_THREAD, work
from tracelab.findings.finding import CRITICAL


def loading(first_ends, second):
    return [
        *work(10 * US, first_ends * US, launched=0, correlation=1),
        annotation(LOADER, 2 * US, 160 * US),
        *work(second * US, (second + 200) * US, launched=162 * US, correlation=2),
    ]


def test_input_bound(findings):
    # Idle in [60, 165), with the loader until 160: 100 of 355 us.
    [finding] = findings(*loading(60, 165))

    assert (finding.rule, finding.cause, finding.severity) == ("TL302", "input_bound", CRITICAL)
    assert finding.bound_ns == 100 * US
    assert finding.evidence == (2,)
    assert finding.title == "The GPU waits for the data loader"
    assert finding.where.annotation == LOADER


def test_is_silent_where_the_queue_is_full(summaries):
    assert summaries(*loading(210, 210)) == []


def test_counts_no_loader_of_another_thread_while_the_launching_one_works(summaries):
    rows = [
        *work(10 * US, 60 * US, launched=0, correlation=1),
        operator("aten::add", 2 * US, 162 * US),
        annotation(LOADER, 2 * US, 160 * US, tid=OTHER_THREAD),
        *work(165 * US, 365 * US, launched=162 * US, correlation=2),
    ]

    assert [x[0] for x in summaries(*rows)] == ["TL301"]


MS = 1_000 * US


def prepared_by(*frames):
    """The GPU is idle from 1 to 12 ms while the thread that launches runs these functions."""
    return [
        python("train.py(3): train", 0, 13 * MS),
        *work(10 * US, 1 * MS, launched=5 * US, correlation=1),
        *(python(frame, 2 * MS, 11 * MS) for frame in frames),
        *work(12 * MS, 14 * MS, launched=12 * MS - 5 * US, correlation=2),
    ]


@pytest.mark.parametrize(
    "function",
    [
        "train.py(12): collate_images",
        "data.py(31): __getitem__",
        "transformers/models/owlv2/image_processing_owlv2.py(368): preprocess",
        "torchvision/transforms/functional.py(20): resize",
        "PIL/Image.py(900): resize",
    ],
)
def test_loader_in_the_launching_thread_is_named_by_its_function(findings, function):
    [finding] = [x for x in findings(*prepared_by(function)) if x.rule == "TL302"]

    assert finding.bound_ns == 9 * MS
    where = finding.where
    assert function.rpartition(" ")[2] in (where.function, where.call)
    assert finding.remedy == "data-in-launching-thread"
    assert "pin" not in finding.fix


def test_numpy_in_a_loader_is_named_by_the_function_that_calls_it(findings):
    rows = prepared_by(
        "data.py(31): __getitem__",
        "data.py(40): resize",
        "scipy/ndimage/_interpolation.py(739): zoom",
        "<built-in function zoom_shift>",
    )

    [finding] = [x for x in findings(*rows) if x.rule == "TL302"]

    where = finding.where
    assert (where.call, where.function, where.file) == ("zoom", "resize", "data.py")


def test_numpy_without_a_loader_is_work_of_the_host(findings):
    rows = prepared_by("train.py(50): metrics", "numpy/lib/function_base.py(5): percentile")

    [finding] = [x for x in findings(*rows) if x.rule.startswith("TL3")]

    assert (finding.rule, finding.cause) == ("TL301", "slow_host")
    assert (finding.where.function, finding.where.call) == ("metrics", "percentile")


@pytest.mark.parametrize(
    "rows",
    [
        # It launches a kernel itself: it prepares on the GPU.
        [
            *prepared_by("sam.py(164): preprocess"),
            *work(14 * MS, 15 * MS, launched=3 * MS, correlation=3),
        ],
        # It is a part of the model.
        prepared_by("nn.Module: Sam_0", "sam.py(164): preprocess"),
        prepared_by("transformers/models/owlv2/image_processing_owlv2.py(500): post_process_boxes"),
    ],
)
def test_what_bears_the_name_and_loads_nothing_is_no_loader(findings, rows):
    assert "TL302" not in [x.rule for x in findings(*rows)]
