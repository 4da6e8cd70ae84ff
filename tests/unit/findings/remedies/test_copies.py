"""Remedies of copies, in the layout that torch 2.11 writes."""

from collections import Counter

import pytest

from tests.build import rows
from tests.build.remedy_programs import recognized
from tests.build.rows import (
    D2H,
    H2D,
    PAGEABLE_H2D,
    US,
    Row,
    annotation,
    call,
    operator,
    python,
)
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import recognize
from tracelab.model.trace import Category

PAGEABLE_D2H = "Memcpy DtoH (Device -> Pageable)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
IN_LOADER = {"loader-without-workers": 5, "data-in-launching-thread": 5}
MEMCPY = "cudaMemcpyAsync"


def a_copy(size_bytes):
    def make(start, end, name, *, correlation):
        return Row(
            name,
            Category.MEMCPY,
            start,
            end,
            device=0,
            stream=7,
            correlation=correlation,
            copied_bytes=size_bytes,
        )

    return make


def copies(name, *, waits, size_bytes=1 << 20):
    """`aten::copy_` with the call of a copy, and a synchronize behind it or not."""

    def run(program):
        program.add(operator, "aten::copy_", 100, 300)
        program.launch(110, 120, make=a_copy(size_bytes), name=name, call=MEMCPY)
        if waits:
            program.add(call, "cudaStreamSynchronize", 125, 290)

    return run


@pytest.mark.parametrize(
    ("name", "waits", "found"),
    [
        (H2D, True, {"pinned-but-blocking": 5}),
        (H2D, False, {}),
        (PAGEABLE_H2D, True, {"pageable-batch": 5}),
        (PAGEABLE_D2H, True, {"pageable-read": 5}),
        (D2H, True, {}),
    ],
)
def test_copies_that_are_waited_for(name, waits, found):
    assert recognized(copies(name, waits=waits)) == found


def test_few_numbers_are_no_batch():
    assert recognized(copies(PAGEABLE_H2D, waits=True, size_bytes=4_096)) == {}


def test_a_copy_to_pageable_memory_that_is_not_waited_for():
    run = copies(PAGEABLE_D2H, waits=False)
    waits_elsewhere = call("cudaStreamSynchronize", 5, 9)

    found = {"non-blocking-to-pageable": 5, "pageable-read": 5}
    assert recognized(run, outside=[waits_elsewhere]) == found
    # A file without any synchronize does not record them.
    assert recognized(run) == {"pageable-read": 5}


def pins(program):
    program.add(operator, "aten::pin_memory", 100, 900)
    program.add(operator, "aten::_pin_memory", 110, 890)


def pins_in_loader(program):
    program.add(annotation, LOADER, 50, 1_050)
    pins(program)


@pytest.mark.parametrize(
    ("run", "in_steps", "found"),
    [
        (pins, range(5), {"pinning-in-training-thread": 10}),
        (pins, (0, 1), {}),
        (pins_in_loader, range(5), IN_LOADER),
    ],
    ids=["itself", "once", "the loader without workers"],
)
def test_pinning_in_the_thread_that_launches(run, in_steps, found):
    assert recognized(run, in_steps=in_steps) == found


def test_pinning_in_the_loaders_thread_is_as_it_should_be():
    def run(program):
        program.add(operator, "aten::pin_memory", 100, 900, thread=1)

    assert recognized(run) == {}


def converts(*, name="aten::_to_copy", lasts=2_000, on_gpu=False, loads=False, within_copy=False):
    def run(program):
        if loads:
            program.add(annotation, LOADER, 50, 150 + lasts)
        if within_copy:
            program.add(operator, "aten::copy_", 50, 400 + lasts)
            program.add(operator, "aten::copy_", 200 + lasts, 300 + lasts)
            at = 210 + lasts
            program.launch(at, at + 5, make=a_copy(1 << 20), name=H2D, call=MEMCPY)
        program.add(operator, name, 100, 100 + lasts)
        program.add(operator, "aten::copy_", 110, 90 + lasts)
        if on_gpu:
            program.launch(120, 125)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (converts(), {"conversion-on-cpu": 5}),
        (converts(within_copy=True), {"conversion-within-copy": 5}),
        (converts(within_copy=True, name="aten::contiguous"), {"conversion-within-copy": 5}),
        (converts(name="aten::contiguous"), {}),
        (converts(lasts=49), {}),
        (converts(on_gpu=True), {}),
        (converts(loads=True), IN_LOADER),
    ],
    ids=["to", "within a copy", "contiguous", "alone", "short", "on the GPU", "in the loader"],
)
def test_conversions_on_the_cpu(run, found):
    assert recognized(run) == found


def small(count, *, size_bytes=1_024, kernel_behind=0):
    """Copies, and a kernel behind so many of them."""

    def run(program):
        for i in range(count):
            at = 110 + 20 * i
            program.launch(at, at + 5, make=a_copy(size_bytes), name=H2D, call=MEMCPY)
            if i + 1 == kernel_behind:
                program.launch(at + 10, at + 15)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (small(11), {"many-small-copies": 50}),
        (small(10), {}),
        (small(11, size_bytes=65_537), {}),
        (small(11, kernel_behind=5), {}),
        (small(12, kernel_behind=5), {"many-small-copies": 50}),
    ],
    ids=["eleven", "ten", "large", "five and six", "five and seven"],
)
def test_many_small_copies_but_for_the_first_of_each_row(run, found):
    assert recognized(run) == found


def test_a_small_copy_goes_with_what_was_called_for_it():
    # GIVEN twelve copies, each in an operator of a built-in function, which waits for it
    some = []
    for number in range(3):
        begin = number * 1_000 * US
        some.append(rows.step(number, begin, begin + 1_000 * US))
        some.append(rows.launch(begin + US, begin + 3 * US, 100 + number))
        some.append(rows.kernel(begin + 5 * US, begin + 7 * US, correlation=100 + number))
        for i in range(12):
            at, correlation = begin + (10 + 20 * i) * US, 1 + 12 * number + i
            some += [
                rows.python("<built-in method to of Tensor object at 0x7f>", at, at + 15 * US),
                rows.operator("aten::to", at + US, at + 14 * US),
                rows.launch(at + 2 * US, at + 5 * US, correlation, name=MEMCPY),
                rows.copy(at + 6 * US, at + 8 * US, copied_bytes=64, correlation=correlation),
                rows.call("cudaStreamSynchronize", at + 6 * US, at + 12 * US),
            ]
    places = recognize(rows.graph(*some), REMEDIES).places["many-small-copies"]
    # THEN of all but the first of each step there are the function, the operator and the call
    names = [some[event_id].name for event_id in places.tolist()]
    assert Counter(names) == dict.fromkeys((some[3].name, "aten::to", MEMCPY), 33)


@pytest.mark.parametrize(
    ("lasts", "found"), [(0, {"layout-transposes": 5}), (1.9, {"layout-transposes": 5}), (2, {})]
)
def test_kernels_that_change_the_layout(lasts, found):
    # Group normalization, which would change it itself, takes less than a tenth of their 20 us.
    def run(program):
        program.add(operator, "aten::cudnn_convolution", 100, 200)
        program.launch(110, 115, name="void cudnn::ops::nchwToNhwcKernel<float>", lasts=20)
        program.launch(150, 155, name="sm90_xmma_fprop")
        if lasts:
            program.add(operator, "aten::native_group_norm", 200, 300)
            program.launch(210, 215, name="RowwiseMomentsCUDAKernel", lasts=lasts)

    assert recognized(run) == found


@pytest.mark.parametrize(
    ("operators", "found"),
    [
        (["aten::conv1d"], {}),
        (["aten::conv_transpose1d"], {}),
        (["aten::conv1d", "aten::conv2d"], {"layout-transposes": 5}),
        (["aten::conv_transpose3d"], {"layout-transposes": 5}),
    ],
)
def test_sequences_have_no_channels_last(operators, found):
    def run(program):
        for i, name in enumerate(operators):
            program.add(operator, name, 100 * i, 100 * i + 90)
        program.launch(10, 15, name="void cudnn::ops::nchwToNhwcKernel<float>", lasts=20)

    assert recognized(run) == found


def averages(
    *, lasts=100, function="train.py(3): update", between=False, operator_name="aten::lerp_"
):
    """Two weights are copied, 400 us each with the wait, and averaged on the CPU."""

    def run(program):
        program.add(python, "train.py(1): step", 50, 2_000)
        program.add(python, "train.py(3): update", 90, 1_500)
        for begin in (100, 800):
            program.add(operator, "aten::copy_", begin, begin + 450)
            program.launch(
                begin + 10, begin + 410, make=a_copy(1 << 20), name=PAGEABLE_D2H, call=MEMCPY
            )
            program.add(call, "cudaStreamSynchronize", begin + 415, begin + 440)
            if between:
                program.launch(begin + 460, begin + 465)
            if function != "train.py(3): update":
                program.add(python, function, begin + 465, begin + 695)
            program.add(operator, operator_name, begin + 470, begin + 470 + lasts)

    return run


@pytest.mark.parametrize(
    ("run", "in_steps", "found"),
    [
        (averages(), range(5), 20),
        (averages(), (0, 2), 0),
        (averages(lasts=39), range(5), 0),  # 78 us in all, less than a tenth of the copies' 800
        (averages(lasts=51), range(5), 20),
        (averages(between=True), range(5), 0),
        (averages(function="train.py(9): log"), range(5), 0),
        (averages(operator_name="aten::view"), range(5), 0),
        (averages(operator_name="aten::randn"), range(5), 0),
    ],
    ids=[
        "averages",
        "once, later",
        "short",
        "long",
        "behind a launch",
        "elsewhere",
        "a view",
        "made anew",
    ],
)
def test_copies_behind_which_the_cpu_computes(run, in_steps, found):
    events = recognized(run, in_steps=in_steps)
    assert events.get("read-to-compute", 0) == found
    assert events["pageable-read"] == 2 * len(in_steps)  # what it is where none knows more
