"""A communication hook of DistributedDataParallel: where its all-reduce runs decides what it hides.

In the default stream the all-reduce, and the division after it, stand between two pieces of the
backward pass. In a side stream the backward pass goes on beside them. With
CUDA_DEVICE_MAX_CONNECTIONS=1 all streams share one queue to the GPU, and the side stream is again
as good as none.
"""

# No postponed annotations here: DDP compares a hook's annotations with the classes themselves.
import sys
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tracelab.workloads.runner import run

WIDTH, LAYERS, ROWS = 4096, 8, 4096

Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def train(hook: Hook | None) -> Iterator[None]:
    """Forward, backward and update of a plain network whose gradients the ranks average."""
    device = torch.device("cuda", torch.cuda.current_device())
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    network = torch.nn.Sequential(*layers).to(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = DistributedDataParallel(network, device_ids=[device.index], bucket_cap_mb=64)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(ROWS, WIDTH, device=device)
    while True:
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()
        yield


def averaged(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce and divide a bucket in the current stream; done when that stream gets there."""
    gradients = bucket.buffer()
    dist.all_reduce(gradients, async_op=True).wait()
    gradients.div_(dist.get_world_size())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[gradients.device])
    done.set_result(gradients)
    return done


def in_default_stream(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DEFECT: the backward pass waits for each bucket."""
    return averaged(bucket)


def hook_with_side_stream() -> Hook:
    """FIX: only the optimizer waits."""
    side = torch.cuda.Stream()

    def in_side_stream(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return averaged(bucket)

    return in_side_stream


VARIANTS = {
    "default_stream": lambda: train(in_default_stream),
    "side_stream": lambda: train(hook_with_side_stream()),
    "side_stream_one_queue": lambda: train(hook_with_side_stream()),
    "no_hook": lambda: train(None),
}

if __name__ == "__main__":
    sys.exit(run("ddp_hook", VARIANTS, stacks=True))
