"""Remedies of collectives, each in the layout that PyTorch writes, and beside it what is none."""

import pytest

from tests.build.rows import (
    AUTOGRAD,
    D2H,
    MAIN,
    US,
    Message,
    annotation,
    communicates,
    copy,
    graph,
    kernel,
    launch,
    operator,
    python,
    step,
    sync_row,
)
from tracelab.findings.remedies import REMEDIES
from tracelab.findings.remedy import recognize

KB, MB = 1_000, 1_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
IN_DISTRIBUTED = "torch/distributed/distributed_c10d.py({}): {}"


OF_COLLECTIVES = [
    remedy for remedy in REMEDIES if remedy.id != "launch-loop" and not remedy.is_general
]


class Program:
    """Host events one after another, 100 us each, and what they launch."""

    def __init__(self):
        self.rows, self.now, self.correlation = [], 100 * US, 0

    def add(self, *rows):
        self.rows += rows

    def work(self, name="gemm", *, thread=MAIN, maker=kernel, delay=50, length=10, **more):
        """A launch in the middle of the next 100 us; its activity runs after a delay (us)."""
        self.correlation += 1
        at = self.now + 50 * US
        begin = at + delay * US
        self.add(
            launch(at, at + 2 * US, self.correlation, thread=thread),
            maker(begin, begin + length * US, name, correlation=self.correlation, **more),
        )
        self.now += 100 * US

    def collective(
        self,
        size=4 * KB,
        *,
        name="allreduce",
        op="c10d::allreduce_",
        on_gpu=ALL_REDUCE,
        thread=MAIN,
        around=(),
        delay=50,
    ):
        """A collective, and the host events around it, the innermost first."""
        start, end = self.now + 40 * US, self.now + 60 * US
        for number, make in enumerate((*around, lambda *at: operator(op, *at, thread=thread))):
            self.add(make(start - (9 - number) * US, end + (9 - number) * US))
        message = {"name": name, "group": "0", "in_bytes": size, "out_bytes": size}
        self.add(communicates(start, end, thread=thread, **message))
        self.work(on_gpu, thread=thread, delay=delay, stream=20, message=Message(**message))

    def gradient(self, size=4 * KB, **more):
        """The all-reduce of a bucket, after the product that ends it."""
        self.work(thread=AUTOGRAD)
        accumulate = (lambda *at: operator(ACCUMULATE, *at, thread=AUTOGRAD),)
        self.collective(size, thread=AUTOGRAD, around=accumulate, **more)

    def read(self):
        self.add(operator("aten::item", self.now + 30 * US, self.now + 90 * US))
        self.work(D2H, maker=copy)

    def span(self, make, since):
        """An event from a moment to now."""
        self.add(make(since, self.now))

    def recognized(self):
        """How many events each remedy is recognized by, and their names."""
        built = graph(*self.rows)
        strings, names = built.host.timeline.trace.strings, built.host.timeline.trace.name_index
        places = recognize(built, OF_COLLECTIVES).places
        return {name: [strings[names[i]] for i in ids.tolist()] for name, ids in places.items()}


def steps(program, body, count=3):
    """The body in each of some steps."""
    for number in range(count):
        start = program.now
        body(program)
        program.add(step(number, start, program.now))
    return program.recognized()


def test_search_for_unused_parameters_with_the_map_that_it_sends():
    def body(program):
        program.add(operator(SEARCH, program.now, program.now + 10 * US))
        program.now += 20 * US
        program.gradient(25 * MB)
        program.gradient(400, on_gpu="ncclDevKernel_AllReduce_Sum_u32_RING_LL")

    found = steps(Program(), body)
    assert found == {"ddp-unused-parameters": [SEARCH] * 3 + ["c10d::allreduce_"] * 3}


def backward(program, *sizes):
    program.work()
    for size in sizes:
        program.gradient(size)
    copies_back = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    program.add(operator(copies_back, program.now, program.now + US, thread=AUTOGRAD))


def test_small_buckets_but_one_in_each_backward_pass():
    found = steps(Program(), lambda program: backward(program, *[4 * KB] * 5))
    assert found == {"ddp-small-buckets": ["c10d::allreduce_"] * 12}


def test_buckets_of_the_default_size_and_a_first_small_one_are_none():
    assert steps(Program(), lambda program: backward(program, MB, 25 * MB, 25 * MB, 4 * KB)) == {}


def update(program):
    program.add(annotation("Optimizer.step#SGD.step", program.now, program.now + 120 * US))
    program.work("multi_tensor_apply")


def test_gradients_of_all_microbatches_but_the_last():
    def body(program):
        for _ in range(3):
            backward(program, MB, 25 * MB)
        update(program)

    copies_back = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    assert steps(Program(), body) == {"ddp-no-sync": ["c10d::allreduce_"] * 12 + [copies_back] * 6}


@pytest.mark.parametrize(
    "sizes", [[(MB, 25 * MB)], [(MB, 25 * MB), (MB, 7 * MB)]], ids=["one pass", "two models"]
)
def test_gradients_of_the_only_backward_pass_are_needed(sizes):
    def body(program):
        for of_pass in sizes:
            backward(program, *of_pass)
        update(program)

    assert steps(Program(), body) == {}


def test_number_that_is_averaged_and_read_in_each_step():
    def body(program):
        program.work()
        program.collective(4)
        program.work("div")
        program.read()

    found = steps(Program(), body)
    assert found == {"loss-all-reduce": ["c10d::allreduce_", "aten::item"] * 3}


def test_number_that_is_averaged_now_and_then():
    program, numbers = Program(), []

    def body(program):
        program.work()
        numbers.append(0)
        if len(numbers) == 1:
            program.collective(4)
            program.read()

    assert steps(program, body, count=4) == {}


def test_what_a_gradient_scaler_asks_all_ranks_is_needed():
    def body(program):
        name = "aten::_amp_foreach_non_finite_check_and_unscale_"
        program.add(operator(name, program.now, program.now + 90 * US))
        program.work("unscale")
        program.collective(4)
        program.read()

    assert steps(Program(), body) == {}


def test_sum_that_is_used_on_the_gpu_before_it_is_read():
    def body(program):
        program.collective(4)
        for _ in range(3):
            program.work("multi_tensor_apply")
        program.read()

    assert steps(Program(), body) == {}


def test_barrier_in_each_step():
    frame = IN_DISTRIBUTED.format(4820, "barrier")

    def body(program):
        program.work()
        around = [lambda *at: python(frame, *at)]
        program.collective(4, name="barrier", op="c10d::barrier", around=around)

    assert steps(Program(), body) == {"barrier": [frame] * 3}


def test_many_small_ones_in_a_row():
    frame = "torch/distributed/c10d_logger.py(80): wrapper"

    def body(program):
        for _ in range(5):
            program.collective(around=[lambda *at: python(frame, *at)])

    assert steps(Program(), body) == {"collectives-in-a-row": [frame] * 12}


def test_small_ones_that_the_next_layer_needs_are_none():
    def body(program):
        for _ in range(5):
            program.collective()
            for _ in range(3):
                program.work()

    assert steps(Program(), body) == {}


@pytest.mark.parametrize("has_stacks", [True, False])
def test_buffers_that_are_sent_before_the_forward_pass(has_stacks):
    frame = "torch/nn/parallel/distributed.py(2214): _sync_buffers"

    def body(program):
        start = program.now
        around = [lambda *at: python(frame, *at)] if has_stacks else []
        program.collective(around=around, name="broadcast", op="c10d::broadcast_")
        program.work()
        program.span(lambda *at: annotation("DistributedDataParallel.forward", *at), start)

    found = steps(Program(), body)
    assert found == {"ddp-buffer-broadcast": [frame if has_stacks else "c10d::broadcast_"] * 3}


def test_broadcast_outside_the_forward_pass_of_ddp_is_none():
    def body(program):
        program.collective(name="broadcast", op="c10d::broadcast_")

    assert steps(Program(), body) == {}


def test_objects_in_each_step():
    frame = IN_DISTRIBUTED.format(3100, "all_gather_object")

    def body(program):
        program.add(python(frame, program.now, program.now + 300 * US))
        program.collective(name="all_gather", op="c10d::allgather_")
        program.work()

    assert steps(Program(), body) == {"object-collectives": [frame] * 3}


@pytest.mark.parametrize("between", [0, 5])
def test_splits_that_the_host_reads_before_an_all_to_all(between):
    def body(program):
        program.add(operator("aten::_to_copy", program.now + 30 * US, program.now + 90 * US))
        program.work(D2H, maker=copy)
        for _ in range(between):
            program.work()
        program.collective(
            4 * MB, name="all_to_allv", op="c10d::alltoall_base_", on_gpu="ncclDevKernel_SendRecv"
        )

    found = steps(Program(), body)
    assert found == ({} if between else {"moe-split-sizes": ["aten::_to_copy"] * 3})


def test_batch_norms_that_average_over_the_ranks():
    def body(program):
        program.add(operator("SyncBatchNorm", program.now, program.now + 200 * US))
        program.collective(name="allgather", op="c10d::allgather_")
        program.work()

    assert steps(Program(), body) == {"sync-batch-norm": ["SyncBatchNorm"] * 3}


def gathers(count, size, waits):
    """A program in which each layer's parameters are gathered before the layer.

    Args:
        waits: whether the gather's stream waits for the layer before.
    """

    def body(program):
        for layer in range(count):
            start = program.now
            if waits:
                recorded, waited = 1_000 + program.correlation, 2_000 + program.correlation
                program.add(
                    launch(start, start + US, recorded, name="cudaEventRecord"),
                    launch(start + US, start + 2 * US, waited, name="cudaStreamWaitEvent"),
                    sync_row(
                        "Stream Wait Event",
                        start + US,
                        start + US,
                        stream=20,
                        correlation=waited,
                        wait_stream=7,
                        wait_correlation=recorded,
                    ),
                )
            program.collective(
                size,
                name="_allgather_base",
                op="c10d::_allgather_base_",
                on_gpu="ncclDevKernel_AllGather_RING_LL",
                delay=112 if waits else 50,
            )
            program.span(lambda *at, i=layer: annotation(f"FSDP::all_gather ({i})", *at), start)
            program.work(length=150)

    return body


def test_layers_that_wait_for_their_parameters():
    found = steps(Program(), gathers(4, 32 * MB, waits=True))
    assert set(found) == {"fsdp-late-gather"}
    assert all(name.startswith("FSDP::all_gather") for name in found["fsdp-late-gather"])


def test_layers_whose_parameters_are_there_are_none():
    assert steps(Program(), gathers(4, 32 * MB, waits=False)) == {}


def test_collectives_of_tensor_parallelism():
    frame = "megatron/core/tensor_parallel/mappings.py(22): _reduce"

    def body(program):
        program.collective(16 * MB, around=[lambda *at: python(frame, *at)])
        program.work()
        program.add(python(frame, program.now, program.now + US))

    assert steps(Program(), body) == {"tensor-parallel": [frame] * 3}
