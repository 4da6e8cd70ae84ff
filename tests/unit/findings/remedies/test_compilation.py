"""Remedies of torch.compile and CUDA graphs, in the layout that torch 2.13 writes."""

import pytest

from tests.build.remedy_programs import back_through, recognized
from tests.build.rows import AUTOGRAD, annotation, call, kernel, operator, python

COMPILE = "_compile.compile_inner (dynamo_timed)"
GRAPH = "## Call CompiledFxGraph fud64jsrxcxliekg7lptyw24yz5k ##"
RESUME = "train.py(6): torch_dynamo_resume_in_forward_at_6"
RECOMPUTE = "torch/utils/checkpoint.py(1500): recompute_fn"
CUDNN = "aten::_scaled_dot_product_cudnn_attention"


def compiles(program):
    program.add(operator, COMPILE, 100, 9_000)


@pytest.mark.parametrize(
    ("in_steps", "found"),
    [
        ((1, 3), {"recompilation": 2}),
        ((0, 1), {"first-compilation": 2}),
        ((2,), {"first-compilation": 1}),
    ],
    ids=["goes on", "the first two steps", "once"],
)
def test_compilation_goes_on_in_two_steps_after_the_first(in_steps, found):
    assert recognized(compiles, in_steps=in_steps) == found


@pytest.mark.parametrize(
    "name",
    [
        "dynamo",
        "entire_backward_compile",
        "inductor_compile",
        "backward._backward_impl (dynamo_timed)",
        "_compile.<locals>.compile_inner (dynamo_timed)",  # of torch 2.1
    ],
)
def test_what_compiling_is_called(name):
    assert recognized(lambda program: program.add(operator, name, 100, 9_000)) == {
        "recompilation": 5
    }


def compiled(kernels, *more, first=0):
    def run(program):
        program.add(annotation, GRAPH, 100, 900, thread=AUTOGRAD)
        for i in range(kernels + (first if not program.number else 0)):
            start = 110 + 30 * i
            program.launch(start, start + 5, name="triton_poi_fused_0", thread=AUTOGRAD)
        for name in more:
            program.add(call, name, 700, 710, thread=AUTOGRAD)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (compiled(12), {"compiled-without-graph": 5}),
        (compiled(9), {}),
        (compiled(12, "cudaStreamSynchronize"), {}),
        (compiled(12, "cudaGraphLaunch"), {}),
        (compiled(12, first=1), {}),
    ],
    ids=["kernel by kernel", "few kernels", "waits", "a graph", "not the same each time"],
)
def test_compiled_code_that_a_graph_could_launch(run, found):
    assert recognized(run) == found


def records(program):
    program.add(python, "torch/_inductor/cudagraph_trees.py(1332): _record", 100, 900)
    program.add(call, "cudaStreamBeginCapture", 110, 120)
    program.add(python, "model.py(8): forward", 125, 195)
    program.add(operator, "aten::linear", 127, 190)
    program.add(call, "cudaLaunchKernel", 130, 135)
    program.add(call, "cudaStreamEndCapture", 200, 210)
    program.add(call, "cudaGraphInstantiate", 220, 300)


@pytest.mark.parametrize(
    ("in_steps", "found"),
    [((1, 2, 3, 4), {"graph-recorded-again": 28}), ((0, 1), {})],
    ids=["goes on", "first use"],
)
def test_graphs_that_are_recorded_again(in_steps, found):
    # The function, and what is from the begin of the capture to its end: three calls, the function
    # that is captured and its operator; and the instantiation.
    assert recognized(records, in_steps=in_steps) == found


def test_what_torch_does_around_a_capture_goes_with_it():
    # GIVEN the graph before destroyed, a new one made, and `torch.cuda.graph` entered, where the
    # host waits for the GPU, and left: beside the 7 of `records` these are 4 functions and a call
    def records_with_torch(program):
        program.add(call, "cudaGraphExecDestroy", 20, 30)
        program.add(python, "torch/cuda/graphs.py(71): __new__", 31, 35)
        program.add(python, "torch/cuda/graphs.py(214): __init__", 36, 60)
        program.add(python, "torch/cuda/graphs.py(237): __enter__", 70, 122)
        program.add(call, "cudaDeviceSynchronize", 75, 90)
        records(program)
        program.add(python, "torch/cuda/graphs.py(264): __exit__", 198, 310)
        program.add(python, "torch/cuda/graphs.py(137): replay", 320, 400)

    # THEN all but the wait, which lies in a function that goes, and the replay
    found = recognized(records_with_torch, in_steps=(1, 2))
    assert found == {"graph-recorded-again": 2 * (7 + 5)}


@pytest.mark.parametrize(
    ("lasts", "in_steps", "found"),
    [
        (3_000, (1, 2, 3), {"cudnn-attention-plans": 3}),
        (3_000, (2,), {"first-cudnn-plan": 1}),
        (1_900, (1, 2, 3), {}),
    ],
    ids=["each length", "once", "has its plan"],
)
def test_attention_that_cudnn_plans(lasts, in_steps, found):
    def attends(program):
        program.add(operator, CUDNN, 100, 100 + lasts)

    assert recognized(attends, in_steps=in_steps) == found


def test_an_rnn_takes_long_to_launch_not_to_plan():
    def runs(program):
        program.add(operator, "aten::_cudnn_rnn", 100, 3_100)
        for i in range(20):
            program.launch(200 + 100 * i, 205 + 100 * i)

    assert recognized(runs) == {}


def test_what_checkpointing_computes_again():
    def backward(program):
        program.add(python, "torch/utils/checkpoint.py(1111): unpack_hook", 100, 900)
        program.add(python, RECOMPUTE, 110, 800)

    assert recognized(backward) == {"checkpoint-recompute": 5}
    assert recognized(backward, in_steps=(2,)) == {}


CUT = {"read-breaks-graph": 5, "reads-cut-compiled": 5}


def reads(*regions, at=200, resumes=None):
    """A read of the GPU at a time, and compiled regions from a time to another each.

    What a break leaves, and is not compiled, begins at `resumes`.
    """

    def run(program):
        if resumes is not None:
            program.add(python, RESUME, resumes, resumes + 10)
        for number, (start, end) in enumerate(regions):
            program.add(operator, f"Torch-Compiled Region: {number}/0", start, end)
        program.add(operator, "aten::item", at, at + 100)
        program.add(operator, "aten::_local_scalar_dense", at + 1, at + 99)
        program.launch(at + 10, at + 15, name="Memcpy DtoH (Device -> Pinned)", make=kernel)
        program.add(call, "cudaStreamSynchronize", at + 20, at + 90)

    return run


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (reads((100, 900), (400, 800)), CUT),
        (reads((100, 900), (250, 280), (400, 800)), CUT),
        (reads((100, 900), resumes=400), CUT),
        (reads((100, 900), resumes=150), {}),
        (reads((100, 250), resumes=400), {}),
        (reads((100, 900)), {}),
        (reads((100, 900), (120, 180)), {}),
        (reads((100, 180), (400, 800)), {}),
        (reads(), {}),
    ],
    ids=[
        "the rest is another region",
        "that of two others that begins last",
        "the rest computes nothing",
        "the rest is before it",
        "the rest is of another function",
        "kept in the graph",
        "the other region is before it",
        "between two functions",
        "not compiled",
    ],
)
def test_reads_that_break_a_compiled_graph(run, found):
    assert recognized(run) == found


WRAPPER = "torch/_dynamo/eval_frame.py(956): compile_wrapper"
LOOKUP = "TorchDynamo Cache Lookup"
MUL_BACKWARD = "autograd::engine::evaluate_function: MulBackward0"


def wrapped(*inside, kernels=10, wrapper=WRAPPER):
    """A call of a compiled function, with operators that launch, and their backward pass."""

    def run(program):
        program.add(python, wrapper, 100, 1_000)
        for number, name in enumerate(inside):
            program.add(operator, name, 110 + 20 * number, 125 + 20 * number)
        for number in range(kernels):
            at = 200 + 50 * number
            program.add(operator, "aten::mul", at, at + 40)
            program.launch(at + 10, at + 20)
            at += 1_000
            program.add(operator, MUL_BACKWARD, at, at + 40, thread=AUTOGRAD)
            program.launch(at + 10, at + 20, thread=AUTOGRAD)

    return run


@pytest.mark.parametrize(
    ("run", "in_steps", "found"),
    [
        # A call and ten nodes of autograd in each of five steps.
        (wrapped(LOOKUP), range(5), {"recompile-limit": 5 * 11}),
        # Of PyTorch before 2.9.
        (
            wrapped(LOOKUP, wrapper="torch/_dynamo/eval_frame.py(465): _fn"),
            range(5),
            {"recompile-limit": 5 * 11},
        ),
        (wrapped(LOOKUP), (0, 1), {}),  # while it is compiled
        (wrapped(LOOKUP, "Torch-Compiled Region: 0/8"), range(5), {}),
        (wrapped(LOOKUP, GRAPH), range(5), {}),
        (wrapped(LOOKUP, COMPILE), range(5), {"recompilation": 5}),
        (wrapped(), range(5), {}),  # not to be compiled: `torch.compiler.disable`
        (wrapped(LOOKUP, kernels=9), range(5), {}),
    ],
    ids=["eager", "old", "first", "compiled", "graph", "compiles", "disabled", "small"],
)
def test_compiled_functions_that_run_eagerly(run, in_steps, found):
    arguments = back_through("aten::mul", MUL_BACKWARD)
    assert recognized(run, in_steps=in_steps, arguments=arguments) == found
