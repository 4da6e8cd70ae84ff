"""What work costs the work beside it, and what the host's calls cost.

    python tests/benchmarks/contention.py [--only PART ...] [--json FILE]

Constants that a replay of a step needs and that no trace of one program shows: how much longer a
kernel takes beside a copy, beside a collective that transfers or waits, beside a kernel of its own
size; how fast copies are; how long the host takes to go on after a wait; how many launches the
driver queues. Prints a table for each part, in microseconds unless it says otherwise. One GPU will
do; copies between GPUs and collectives need a second one, and the cost of single CUDA calls needs
nvcc. What is not there is left out.

Kernels and copies wait behind a kernel that only spins until all are launched, so what is measured
is the GPU's, not the host's. Their lengths and gaps come from the trace of a profiler; whatever is
measured without one says so.
"""

import argparse
import collections
import ctypes
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
SPIN_MS = 20  # longer than launching a few hundred kernels takes
CTAS = (4, 8, 16, 24, None)  # of NCCL at most; None: its own choice
PORT = "29731"

# Launches nothing but what it times: PyTorch's own operators cost several times a launch.
CALLS_SOURCE = r"""
#include <cuda_runtime.h>
#include <time.h>
static long long now_ns() {
  timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec;
}
__global__ void nothing() {}
__global__ void spin(long long ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < ns);
}
extern "C" int time_calls(int kind, int count, long long spin_ns, long long* ns) {
  cudaEvent_t event; char* device; char* host; cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaMalloc(&device, 64); cudaMallocHost(&host, 64);
  nothing<<<1, 32, 0, stream>>>(); cudaEventRecord(event, stream);
  cudaDeviceSynchronize();
  if (spin_ns) spin<<<1, 1, 0, stream>>>(spin_ns);
  for (int i = 0; i < count; i++) {
    long long start = now_ns();
    if (kind == 0) nothing<<<1, 32, 0, stream>>>();
    if (kind == 1) cudaEventRecord(event, stream);
    if (kind == 2) cudaStreamWaitEvent(stream, event, 0);
    if (kind == 3) cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream);
    if (kind == 4) cudaMemsetAsync(device, 0, 64, stream);
    ns[i] = now_ns() - start;
  }
  cudaError_t error = cudaDeviceSynchronize();
  cudaEventDestroy(event); cudaFree(device); cudaFreeHost(host); cudaStreamDestroy(stream);
  return error;
}
"""
CALLS = ("cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent")
CALLS += ("cudaMemcpyAsync", "cudaMemsetAsync")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART", default=[*PARTS], help=", ".join(PARTS)
    )
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        arguments.json.write_text(json.dumps(PARTS[arguments.part]()))
        return 0
    import torch

    if not torch.cuda.is_available():
        print("an NVIDIA GPU is needed", file=sys.stderr)
        return 4
    figures = {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    print(json.dumps(figures))
    for name in arguments.only:
        figures[name] = in_a_process(name)
        print_table(name, figures[name])
        if arguments.json:
            arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


def in_a_process(name):
    """The rows of a part; once a process had a profiler, it is no longer quite without."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "rows.json")
        command = [sys.executable, __file__, "--part", name, "--json", str(output)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return json.loads(output.read_text())


def print_table(name, rows):
    """The rows as a table in Markdown, under the first line of what measured them."""
    if not rows:
        print(f"\n{name}: left out, as it needs what is not there")
        return
    print(f"\n{name}: {PARTS[name].__doc__.splitlines()[0]}\n")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("|".join(("", *columns, "")) + "\n|" + "---|" * len(columns))
    for row in rows:
        print("|".join(("", *(_cell(row.get(key, "")) for key in columns), "")), flush=True)


def _cell(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# What is launched. Each maker allocates once and returns a function that launches one activity.


def product(size):
    import torch

    matrix = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    result = torch.empty_like(matrix)
    return lambda: torch.mm(matrix, matrix, out=result)


def scaled(values):
    """Reads and writes so many bytes each."""
    import torch

    numbers = torch.ones(values // 4, device="cuda")
    return lambda: numbers.mul_(1)


def row_sums():
    """32 blocks: most multiprocessors stay free."""
    import torch

    rows = torch.ones(32, 1 << 18, device="cuda")
    return lambda: rows.cumsum(1)


def kernels():
    """By name: what makes the kernel, and how many outlast a few large copies.

    Fewer than the driver queues, which else would make the host wait.
    """
    return {
        "product 8192": (lambda: product(8192), 20),
        "product 4096": (lambda: product(4096), 120),
        "product 2048": (lambda: product(2048), 500),
        "product 512": (lambda: product(512), 700),
        "elementwise 1 GiB": (lambda: scaled(GIB), 50),
        "elementwise 8 MiB": (lambda: scaled(8 * MIB), 700),
        "elementwise 64 KiB": (lambda: scaled(1 << 16), 700),
        "32 blocks": (row_sums, 120),
    }


def copies():
    """By name: bytes of one copy, and a function that launches it in the present streams."""
    import torch

    count = 256 * MIB
    near = torch.ones(2, count, device="cuda", dtype=torch.uint8)
    pinned = torch.ones(2, count, dtype=torch.uint8, pin_memory=True)
    small = torch.ones(2, MIB, device="cuda", dtype=torch.uint8)
    other = torch.cuda.Stream()

    def both_ways():
        other.wait_stream(torch.cuda.current_stream())
        near[0].copy_(pinned[0], non_blocking=True)
        with torch.cuda.stream(other):
            pinned[1].copy_(near[1], non_blocking=True)
        torch.cuda.current_stream().wait_stream(other)

    made = {
        "host to device": (count, lambda: near[0].copy_(pinned[0], non_blocking=True)),
        "device to host": (count, lambda: pinned[0].copy_(near[0], non_blocking=True)),
        "both ways": (2 * count, both_ways),
        "host to device, 1 MiB": (
            MIB,
            lambda: small[0].copy_(pinned[0, :MIB], non_blocking=True),
        ),
        "within the device": (count, lambda: near[0].copy_(near[1])),
        "memset": (count, near[0].zero_),
    }
    if torch.cuda.device_count() > 1:
        far = torch.ones(count, device="cuda:1", dtype=torch.uint8)
        made["to a peer"] = (count, lambda: far.copy_(near[0], non_blocking=True))
        made["from a peer"] = (count, lambda: near[0].copy_(far, non_blocking=True))
    return made


# How it is measured.


def spin(milliseconds):
    """Launch a kernel that keeps the present stream waiting."""
    import torch

    torch.cuda._sleep(int(milliseconds * _cycles_a_millisecond()))


@functools.cache
def _cycles_a_millisecond():
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(5):
        begin.record()
        torch.cuda._sleep(10_000_000)
        end.record()
        end.synchronize()
    return 10_000_000 / begin.elapsed_time(end)


def synchronize():
    import torch

    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def profiled(launch):
    """The rows of the trace of what a function launches."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        launch()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        rows = json.loads(path.read_text())["traceEvents"]
    return sorted((row for row in rows if row.get("ph") == "X"), key=lambda row: row["ts"])


def beside(kernel, count, load=None):
    """Launch kernels in the default stream and a load in side streams; both begin together.

    Returns:
        the rows of the GPU: of the kernels, and of the load.
    """
    import torch

    sides = [torch.cuda.Stream(device) for device in range(torch.cuda.device_count())]

    def launch():
        spin(SPIN_MS)
        begin = torch.cuda.Event()
        begin.record()
        if load is not None:
            # A copy between GPUs makes the receiver's present stream wait for it, too.
            with torch.cuda.stream(sides[-1]), torch.cuda.stream(sides[0]):
                for side in sides:
                    side.wait_event(begin)
                load()
        for _ in range(count):
            kernel()

    synchronize()
    rows = [row for row in profiled(launch) if row.get("cat", "").startswith(("kernel", "gpu_mem"))]
    synchronize()
    waiting = next(row for row in rows if "spin" in row["name"])
    own_stream = (_device_of(waiting), waiting["args"]["stream"])
    rows = [row for row in rows if row is not waiting]
    is_kernel = [(_device_of(row), row["args"]["stream"]) == own_stream for row in rows]
    return (
        [row for row, is_own in zip(rows, is_kernel, strict=True) if is_own],
        [row for row, is_own in zip(rows, is_kernel, strict=True) if not is_own],
    )


def _device_of(row):
    return row["args"].get("device", 0)


def figures_of(kernel_rows, load_rows):
    """Median length of the kernels that run while the load does, and of the gap before them.

    A product may be more than one activity: the kernel is the name that takes longest in all.
    """
    if load_rows:
        start = min(row["ts"] for row in load_rows)
        end = max(row["ts"] + row["dur"] for row in load_rows)
        covered = [r for r in kernel_rows if start <= r["ts"] and r["ts"] + r["dur"] <= end]
    else:
        covered = kernel_rows
    total_us = collections.Counter()
    for row in covered:
        total_us[row["name"]] += row["dur"]
    main = [i for i, row in enumerate(covered) if row["name"] == total_us.most_common(1)[0][0]]
    if len(main) < 3:
        return {"kernels": len(main)}
    gaps = [covered[i]["ts"] - covered[i - 1]["ts"] - covered[i - 1]["dur"] for i in main[1:]]
    return {
        "kernels": len(main),
        "length": statistics.median(covered[i]["dur"] for i in main),
        "gap": statistics.median(gaps),
        "period": (covered[main[-1]]["ts"] - covered[main[0]]["ts"]) / (len(main) - 1),
    }


def against(alone, beside_load):
    """How many percent longer, and by how much the gap is."""
    if "length" not in beside_load:
        return {}
    return {
        "longer %": 100 * (beside_load["length"] / alone["length"] - 1),
        "gap longer": beside_load["gap"] - alone["gap"],
        "period longer %": 100 * (beside_load["period"] / alone["period"] - 1),
    }


def elapsed_ms(launch):
    """The GPU's time for what a function launches, without a profiler; median of five."""
    import torch

    found = []
    for _ in range(5):
        spin(SPIN_MS)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def warm():
    """Bring the clocks up."""
    import torch

    multiply = product(8192)
    for _ in range(150):
        multiply()
    torch.cuda.synchronize()
    _cycles_a_millisecond()


# The parts.


def part_copies():
    """Kernels beside copies: how much longer they and the gaps between them get."""
    warm()
    made = copies()
    seconds = {}
    for name, (_, copy) in made.items():
        copy()
        synchronize()
        start_s = time.perf_counter()
        for _ in range(8):
            copy()
        synchronize()
        seconds[name] = (time.perf_counter() - start_s) / 8
    rows = []
    for kernel_name, (make, count) in kernels().items():
        kernel = make()
        for _ in range(10):
            kernel()
        alone = figures_of(*beside(kernel, count))
        grid = profiled(kernel)
        alone["grid"] = next(row["args"]["grid"] for row in grid if row.get("cat") == "kernel")
        rows.append({"kernel": kernel_name, "beside": "nothing", **alone})
        alone_s = count * alone["period"] / 1e6
        for name, (bytes_each, copy) in made.items():
            times = min(400, math.ceil(1.5 * alone_s / seconds[name]) + 1)
            kernel_rows, load_rows = beside(
                kernel, count, lambda copy=copy, times=times: [copy() for _ in range(times)]
            )
            found = figures_of(kernel_rows, load_rows)
            span_us = max(r["ts"] + r["dur"] for r in load_rows) - min(r["ts"] for r in load_rows)
            rows.append(
                {
                    "kernel": kernel_name,
                    "beside": name,
                    **found,
                    **against(alone, found),
                    "GB/s": bytes_each * times / span_us / 1e3,
                    "GB/s alone": bytes_each / seconds[name] / 1e9,
                }
            )
    return rows


def part_collectives():
    """Kernels beside an all-reduce of two ranks that transfers, or that waits for its peer."""
    import torch

    if torch.cuda.device_count() < 2:
        return []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "rows.json")
        torch.multiprocessing.spawn(_rank_of_collectives, args=(str(output),), nprocs=2)
        return json.loads(output.read_text())


def _rank_of_collectives(rank, output):
    """One of two ranks; rank 0 computes beside its all-reduces and writes the rows."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    warm()
    values = torch.zeros(256 * MIB, device="cuda", dtype=torch.bfloat16)
    rows, alone = [], {}
    for ctas in CTAS:
        options = dist.ProcessGroupNCCL.Options()
        if ctas is not None:
            options.config.max_ctas = options.config.min_ctas = ctas
        group = dist.new_group(pg_options=options)

        def reduce(times, group=group):
            for _ in range(times):
                dist.all_reduce(values, group=group, async_op=True)

        reduce(3)
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        reduce(8)
        torch.cuda.synchronize()
        reduce_s = (time.perf_counter() - start_s) / 8
        for kernel_name, (make, count) in kernels().items():
            kernel = make()
            for _ in range(10):
                kernel()
            if kernel_name not in alone:
                alone[kernel_name] = figures_of(*beside(kernel, count))
                rows.append({"kernel": kernel_name, "beside": "nothing", **alone[kernel_name]})
            alone_s = torch.tensor(count * alone[kernel_name]["period"] / 1e6, device="cuda")
            dist.broadcast(alone_s, 0)
            times = math.ceil(2 * float(alone_s) / reduce_s) + 1
            for state in ("transfer", "wait"):
                torch.cuda.synchronize()
                dist.barrier(device_ids=[rank])
                torch.cuda.synchronize()
                launched = times if state == "transfer" else 1
                if rank == 1:
                    if state == "wait":
                        time.sleep(0.25 + 2 * float(alone_s))  # the profiler starts, too
                    reduce(launched)
                    torch.cuda.synchronize()
                    continue
                found_rows, load_rows = beside(
                    kernel, count, lambda launched=launched, reduce=reduce: reduce(launched)
                )
                load_rows = [row for row in load_rows if "nccl" in row["name"].lower()]
                found = figures_of(found_rows, load_rows)
                rows.append(
                    {
                        "kernel": kernel_name,
                        "beside": state,
                        "CTAs asked for": ctas or "default",
                        "NCCL grid": load_rows[0]["args"]["grid"][0],
                        "NCCL threads": load_rows[0]["args"]["block"][0],
                        **found,
                        **against(alone[kernel_name], found),
                        "all-reduce": statistics.median(row["dur"] for row in load_rows),
                        "all-reduce alone": reduce_s * 1e6,
                    }
                )
    if rank == 0:
        Path(output).write_text(json.dumps(rows))
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


def part_streams():
    """Kernels in two streams against the same in one; without a profiler, ms.

    ``added up`` is 1 where both together take as long as one after the other, and 0 where the
    shorter costs nothing.
    """
    import torch

    warm()
    made = {name: (make(), count // 2) for name, (make, count) in kernels().items()}
    pairs = [(name, name) for name in made]
    pairs += [
        ("product 8192", "elementwise 1 GiB"),
        ("product 4096", "elementwise 1 GiB"),
        ("product 8192", "elementwise 64 KiB"),
        ("elementwise 1 GiB", "elementwise 64 KiB"),
        ("product 8192", "32 blocks"),
        ("elementwise 1 GiB", "32 blocks"),
    ]
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()

    def together(first, second):
        side.wait_stream(current)
        for i in range(max(first[1], second[1])):
            if i < first[1]:
                first[0]()
            if i < second[1]:
                with torch.cuda.stream(side):
                    second[0]()
        current.wait_stream(side)

    rows = []
    for first_name, second_name in pairs:
        first, (kernel, count) = made[first_name], made[second_name]
        first_ms = elapsed_ms(lambda first=first: [first[0]() for _ in range(first[1])])
        second_ms = elapsed_ms(lambda kernel=kernel, count=count: [kernel() for _ in range(count)])
        # As long as the other; one more object, so that both do not write the same.
        count = max(1, min(400, round(count * first_ms / second_ms)))
        second = (kernels()[second_name][0](), count)
        second_ms = elapsed_ms(lambda second=second: [second[0]() for _ in range(second[1])])
        both_ms = elapsed_ms(lambda first=first, second=second: together(first, second))
        longer_ms, shorter_ms = max(first_ms, second_ms), min(first_ms, second_ms)
        rows.append(
            {
                "first": first_name,
                "second": second_name,
                "first ms": first_ms,
                "second ms": second_ms,
                "both ms": both_ms,
                "added up": (both_ms - longer_ms) / shorter_ms,
            }
        )
    return rows


def part_bandwidth():
    """Copies of several sizes, GB/s, without a profiler."""
    return [_bandwidth(mib) for mib in (1, 4, 16, 64, 256)]


def _bandwidth(mib):
    """One row: copies that the stream queues, and those that the host waits for."""
    import torch

    count, times = mib * MIB, max(3, min(50, 512 // mib))
    near, near_too = torch.ones(2, count, device="cuda", dtype=torch.uint8)
    pinned, pinned_too = torch.ones(2, count, dtype=torch.uint8).pin_memory()
    pageable = torch.ones(count, dtype=torch.uint8)
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()

    def queued(copy):
        copy()
        return count * times / elapsed_ms(lambda: [copy() for _ in range(times)]) / 1e6

    def waited_for(copy):
        copy()
        found = []
        for _ in range(5):
            synchronize()
            start_s = time.perf_counter()
            for _ in range(times):
                copy()
            synchronize()
            found.append(count * times / (time.perf_counter() - start_s) / 1e9)
        return statistics.median(found)

    def both_ways():
        side.wait_stream(current)
        for _ in range(times):
            near.copy_(pinned, non_blocking=True)
            with torch.cuda.stream(side):
                pinned_too.copy_(near_too, non_blocking=True)
        current.wait_stream(side)

    row = {
        "MiB": mib,
        "pinned to device": queued(lambda: near.copy_(pinned, non_blocking=True)),
        "device to pinned": queued(lambda: pinned.copy_(near, non_blocking=True)),
        "both at once, each": count * times / elapsed_ms(both_ways) / 1e6,
        "pageable to device": waited_for(lambda: near.copy_(pageable)),
        "device to pageable": waited_for(lambda: pageable.copy_(near)),
        "device to new pageable": waited_for(near.cpu),
        "pin_memory()": waited_for(pageable.pin_memory),
        "within the device": queued(lambda: near.copy_(near_too)),
        "memset": queued(near.zero_),
    }
    if torch.cuda.device_count() > 1:
        far = torch.ones(count, device="cuda:1", dtype=torch.uint8)
        row["to a peer"] = queued(lambda: far.copy_(near, non_blocking=True))
    return row


def part_waits():
    """From the end of the GPU's work to the host's next statement, for each way to wait.

    ``unprofiled``: how much later than a host that polls, without a profiler. ``traced``: from the
    end of the last activity to that of the call, in a trace.
    """
    import torch

    warm()
    number, flag = torch.ones(1, device="cuda"), torch.zeros(1, pin_memory=True)
    seen, event, blocking = flag.numpy(), torch.cuda.Event(), torch.cuda.Event(blocking=True)
    stream = torch.cuda.current_stream()

    def poll_event():
        event.record()
        while not event.query():
            pass

    def poll_flag():
        seen[0] = 0
        flag.copy_(number, non_blocking=True)
        while seen[0] == 0:
            pass

    def recorded(event):
        event.record()
        event.synchronize()

    ways = {
        "poll_event": poll_event,
        "poll_flag": poll_flag,
        "Stream.synchronize": stream.synchronize,
        "Event.synchronize": lambda: recorded(event),
        "Event.synchronize, blocking": lambda: recorded(blocking),
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "Tensor.item": number.item,
        "Tensor.cpu": number.cpu,
    }

    def host_us(way, milliseconds):
        spin(milliseconds)
        start_ns = time.perf_counter_ns()
        way()
        return (time.perf_counter_ns() - start_ns) / 1e3

    rows = []
    for milliseconds, repetitions in ((0.2, 200), (2.0, 200), (20.0, 20)):
        found = {name: [] for name in ways}
        for _ in range(repetitions):
            for name, way in ways.items():
                torch.cuda.synchronize()
                found[name].append(host_us(way, milliseconds))
        waited = {name: statistics.median(times) for name, times in found.items()}
        for name in list(ways)[2:]:
            polled = waited["poll_flag" if name in ("Tensor.item", "Tensor.cpu") else "poll_event"]
            unprofiled = waited[name] - polled
            rows.append({"wait": name, "GPU busy, ms": milliseconds, "unprofiled": unprofiled})
    for row in rows:
        if row["GPU busy, ms"] < 10:
            way, milliseconds = ways[row["wait"]], row["GPU busy, ms"]
            row.update(_traced_wait(lambda way=way, ms=milliseconds: host_us(way, ms)))
    return rows


def _traced_wait(wait):
    """The median delay of a wait in a trace, and how often it blocked."""
    rows = profiled(lambda: [wait() for _ in range(50)])
    ends = [r["ts"] + r["dur"] for r in rows if r.get("cat") in ("kernel", "gpu_memcpy")]
    late = []
    for row in rows:
        if row.get("cat") == "cuda_runtime" and "Synchronize" in row["name"]:
            end = row["ts"] + row["dur"]
            before = [x for x in ends if row["ts"] < x <= end]
            if before:
                late.append(end - max(before))
    return {"traced": statistics.median(late), "in the trace": len(late)} if late else {}


def part_calls():
    """CUDA calls that return at once, without a profiler and with; ns a call.

    ``deepest``: how many the driver takes behind a kernel that runs before a call blocks.
    """
    import torch

    library = _library()
    if library is None:
        return []
    torch.cuda.synchronize()

    def time_calls(number, count=400, spin_ms=0):
        nanoseconds = (ctypes.c_longlong * count)()
        if library.time_calls(number, count, ctypes.c_longlong(spin_ms * 1_000_000), nanoseconds):
            raise RuntimeError("a CUDA call failed")
        return list(nanoseconds)

    rows = []
    for number, name in enumerate(CALLS):
        time_calls(number)
        idle, queued = time_calls(number), time_calls(number, spin_ms=20)
        behind = time_calls(number, count=6000, spin_ms=300)
        deepest = next((i for i, ns in enumerate(behind) if ns > 20_000_000), None)
        found = []
        profiled(lambda number=number, found=found: found.append(time_calls(number)))
        profiled(lambda number=number, found=found: found.append(time_calls(number, spin_ms=20)))
        rows.append(
            {
                "call": name,
                "idle GPU": statistics.median(idle),
                "behind a kernel": statistics.median(queued),
                "profiled, idle GPU": statistics.median(found[0]),
                "profiled, behind a kernel": statistics.median(found[1]),
                "deepest": deepest if deepest is not None else f"more than {len(behind)}",
            }
        )
    return rows


def _library():
    """The calls of `CALLS_SOURCE`; None without nvcc."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "calls.cu"), Path(folder, "libcalls.so")
        source.write_text(CALLS_SOURCE)
        flags = ["-arch=native", "-O2", "--shared", "-Xcompiler", "-fPIC", "-cudart", "shared"]
        try:
            command = ["nvcc", *flags, "-o", str(library), str(source)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            return ctypes.CDLL(str(library))
        except (OSError, subprocess.CalledProcessError) as error:
            print(getattr(error, "stderr", "") or error, file=sys.stderr)
            return None


def part_operators():
    """What the host takes for what a profiler records; ns each, without a profiler and with."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    number = torch.ones(1, device="cuda")
    on_host = torch.ones(1)

    def function():
        pass

    def in_range():
        with record_function("range"):
            pass

    each = {
        "operator with a launch": lambda: number.mul_(1),
        "operator without one": on_host.t,
        "view of a GPU tensor": lambda: number.view(1),
        "Python function": function,
        "record_function": in_range,
    }
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    ways = {
        "unprofiled": None,
        "profiled": {"activities": kinds},
        "with shapes": {"activities": kinds, "record_shapes": True},
        "with stacks": {"activities": kinds, "with_stack": True},
    }
    rows = [{"what": name} for name in each]
    for way, settings in ways.items():
        for row, call in zip(rows, each.values(), strict=True):

            def timed_ns(call=call):
                torch.cuda.synchronize()
                start_ns = time.perf_counter_ns()
                for _ in range(900):
                    call()
                return (time.perf_counter_ns() - start_ns) / 900

            timed_ns()
            if settings is None:
                row[way] = statistics.median(timed_ns() for _ in range(5))
            else:
                with profile(**settings):
                    row[way] = statistics.median(timed_ns() for _ in range(3))
    return rows


def part_graphs():
    """The same kernels launched one by one and as a CUDA graph."""
    import torch

    warm()
    rows = []
    for count in (100, 1000):
        for name, make in (("64 KiB", lambda: scaled(1 << 16)), ("8 MiB", lambda: scaled(8 * MIB))):
            kernel = make()
            kernel()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(count):
                    kernel()
            for _ in range(3):
                graph.replay()
            torch.cuda.synchronize()
            few = min(count, 900)
            replay_ms = elapsed_ms(lambda graph=graph: [graph.replay() for _ in range(5)]) / 5
            eager_ms = elapsed_ms(lambda kernel=kernel, few=few: [kernel() for _ in range(few)])
            hosts = []
            for _ in range(30):
                torch.cuda.synchronize()
                start_ns = time.perf_counter_ns()
                graph.replay()
                hosts.append((time.perf_counter_ns() - start_ns) / 1e3)
            idle = _end_to_end_us(graph.replay)
            traced = profiled(lambda graph=graph: [graph.replay() for _ in range(5)])
            in_graph = [r for r in traced if r.get("cat") == "kernel"][count:]
            in_eager, _ = beside(kernel, few)
            calls = [r["dur"] for r in traced if r["name"] == "cudaGraphLaunch"]
            rows.append(
                {
                    "kernel": name,
                    "kernels": count,
                    "graph, a kernel": replay_ms * 1e3 / count,
                    "eager queued, a kernel": eager_ms * 1e3 / few,
                    "traced length in graph": figures_of(in_graph, [])["length"],
                    "traced gap in graph": figures_of(in_graph, [])["gap"],
                    "traced length eager": figures_of(in_eager, [])["length"],
                    "traced gap eager": figures_of(in_eager, [])["gap"],
                    "replay(), host": statistics.median(hosts),
                    "cudaGraphLaunch traced": statistics.median(calls),
                    "replay and synchronize": idle,
                }
            )
    return rows


def _end_to_end_us(function):
    import torch

    found = []
    for _ in range(30):
        torch.cuda.synchronize()
        start_ns = time.perf_counter_ns()
        function()
        torch.cuda.synchronize()
        found.append((time.perf_counter_ns() - start_ns) / 1e3)
    return statistics.median(found)


PARTS = {
    "bandwidth": part_bandwidth,
    "waits": part_waits,
    "streams": part_streams,
    "calls": part_calls,
    "operators": part_operators,
    "graphs": part_graphs,
    "copies": part_copies,
    "collectives": part_collectives,
}


if __name__ == "__main__":
    sys.exit(main())
