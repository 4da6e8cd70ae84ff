"""Places where the CPU waits for the GPU without being told to.

Each step multiplies large matrices, does what the variant is about, and iterates towards an
eigenvector by many small kernels. Whoever waits for the products launches the small kernels on a
GPU that has nothing else to do, and the GPU waits for each of them.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

import torch

from tracelab.workloads.runner import run

SIZE, PRODUCTS = 4096, 10  # the large kernels
SKETCH, ROUNDS = 256, 14  # the small ones
CHUNKS = 64
REPORTED_EVERY = 100
POLICY_WIDTH, CHOICES, ENVIRONMENTS, PLAYED = 64, 8, 32, 3
IMAGES, BOXES, KEPT, SCORE, SMALLEST = 4, 2000, 100, 0.9, 0.01

Middle = Callable[[torch.Tensor], torch.Tensor]  # of bfloat16[size, size] features: a small result


def step_around(middle: Middle) -> Iterator[None]:
    """A loop whose steps call `middle` between the large and the small kernels."""
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
    direction = torch.ones(SKETCH, device="cuda")
    features = matrix
    while True:
        for _ in range(PRODUCTS):
            features = features @ matrix
        result = middle(features)
        sketch = features[:SKETCH, :SKETCH].float() + result
        for _ in range(ROUNDS):
            direction = sketch @ direction
            direction = direction / direction.norm()
        features = matrix
        yield


def mask_chosen() -> Iterator[None]:
    """DEFECT: how many rows a mask chooses is known on the GPU only."""

    def middle(features: torch.Tensor) -> torch.Tensor:
        known = features[:, 0] > 0
        return features[known].float().mean()

    return step_around(middle)


def mask_weighted() -> Iterator[None]:
    """FIX: all rows are kept, and those that do not count are zero."""

    def middle(features: torch.Tensor) -> torch.Tensor:
        known = features[:, 0] > 0
        return torch.where(known, features.float().mean(1), 0).sum() / known.sum()

    return step_around(middle)


def number_copied() -> Iterator[None]:
    """DEFECT: a tensor made of a number on the CPU and copied from pageable memory."""
    return step_around(lambda features: features[0, 0] * torch.tensor(0.1, device="cuda"))


def number_filled() -> Iterator[None]:
    """FIX: a kernel fills it in."""
    return step_around(lambda features: features[0, 0] * torch.full((), 0.1, device="cuda"))


def rows_listed() -> Iterator[None]:
    """DEFECT: a list of rows becomes a tensor, which is copied from pageable memory."""
    return step_around(lambda features: features[[3, 1, 4, 1, 5]].float().mean())


def rows_on_gpu() -> Iterator[None]:
    """FIX: the tensor is made once."""
    rows = torch.tensor([3, 1, 4, 1, 5], device="cuda")
    return step_around(lambda features: features[rows].float().mean())


def number_assigned() -> Iterator[None]:
    """DEFECT: a number is assigned to rows: it becomes a tensor on the CPU, and is copied."""
    rows = torch.arange(0, SIZE, 8, device="cuda")

    def middle(features: torch.Tensor) -> torch.Tensor:
        features[rows] = 0.5
        return features[0, 0]

    return step_around(middle)


def rows_filled() -> Iterator[None]:
    """FIX: an operator that takes a number."""
    rows = torch.arange(0, SIZE, 8, device="cuda")

    def middle(features: torch.Tensor) -> torch.Tensor:
        features.index_fill_(0, rows, 0.5)
        return features[0, 0]

    return step_around(middle)


def repeated(*, size_is_told: bool) -> Iterator[None]:
    """Repeat a value of each chunk for its rows, of which there are as many as features."""
    counts = torch.full((CHUNKS,), SIZE // CHUNKS, device="cuda")
    size = SIZE if size_is_told else None  # DEFECT: not told, it is summed up and read

    def middle(features: torch.Tensor) -> torch.Tensor:
        values = torch.repeat_interleave(features[:CHUNKS, 0], counts, output_size=size)
        return (values * features[0]).float().mean()

    return step_around(middle)


def logged(*, every: int) -> Iterator[None]:
    """Write a line to a log, of each step (DEFECT) or of some (FIX)."""
    log = logging.getLogger("tracelab.workloads.reads")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.FileHandler(os.devnull)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    steps = 0

    def middle(features: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += 1
        mean = features.float().mean()
        if steps % every == 0:
            log.info("step %d: mean %.6f", steps, mean.item())
        return mean

    return step_around(middle)


def timed_by_host() -> Iterator[None]:
    """DEFECT: a clock of the CPU can time the GPU only if the CPU waits for it."""
    times_s = []

    def middle(features: torch.Tensor) -> torch.Tensor:
        torch.cuda.synchronize()
        times_s.append(time.perf_counter())
        return features[0, 0]

    return step_around(middle)


def timed_by_events() -> Iterator[None]:
    """FIX: events have times of their own, which are read some steps later."""
    events: deque[torch.cuda.Event] = deque()
    times_ms: list[float] = []

    def middle(features: torch.Tensor) -> torch.Tensor:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        while len(events) > 1 and events[1].query():
            times_ms.append(events.popleft().elapsed_time(events[0]))
        return features[0, 0]

    return step_around(middle)


def rollout(*, validates: bool | None) -> Iterator[None]:
    """Play some environments by a policy: draw actions, and keep how likely they were."""
    policy = torch.nn.Sequential(
        torch.nn.Linear(POLICY_WIDTH, POLICY_WIDTH),
        torch.nn.Tanh(),
        torch.nn.Linear(POLICY_WIDTH, CHOICES),
    ).cuda()
    effects = torch.randn(CHOICES, POLICY_WIDTH, device="cuda")
    states = torch.randn(ENVIRONMENTS, POLICY_WIDTH, device="cuda")
    while True:
        for _ in range(PLAYED):
            with torch.no_grad():
                # DEFECT: None checks the arguments, so the CPU reads whether they are valid
                chances = torch.distributions.Categorical(
                    logits=policy(states), validate_args=validates
                )
                actions = chances.sample()
                likely = chances.log_prob(actions)
                states = torch.tanh(states + effects[actions] + likely[:, None])
        yield


def detected(*, of_fixed_size: bool) -> Iterator[None]:
    """Choose boxes of each image by their score and size."""
    scores = torch.rand(IMAGES, BOXES, device="cuda")
    corners = torch.rand(IMAGES, BOXES, 2, device="cuda")
    boxes = torch.cat([corners, corners + torch.rand_like(corners) / 10], 2)

    def one_by_one(features: torch.Tensor) -> torch.Tensor:
        """DEFECT: in each image, twice, the CPU reads how many there are."""
        found = []
        for its_boxes, its_scores in zip(boxes, scores + features[0, 0], strict=True):
            kept = torch.where(its_scores > SCORE)[0]
            some, likely = its_boxes[kept], its_scores[kept]
            sides = some[:, 2:] - some[:, :2]
            kept = torch.where((sides > SMALLEST).all(1))[0]
            found.append((some[kept].prod(1) * likely[kept]).sum())
        return torch.stack(found).mean()

    def at_once(features: torch.Tensor) -> torch.Tensor:
        """FIX: of all images as many, and those that do not count are zero."""
        likely, kept = (scores + features[0, 0]).topk(KEPT)
        some = boxes.gather(1, kept[..., None].expand(-1, -1, 4))
        sides = some[..., 2:] - some[..., :2]
        counts = (likely > SCORE) & (sides > SMALLEST).all(2)
        return torch.where(counts, some.prod(2) * likely, 0).sum(1).mean()

    return step_around(at_once if of_fixed_size else one_by_one)


VARIANTS = {
    "mask_chosen": mask_chosen,
    "mask_weighted": mask_weighted,
    "number_copied": number_copied,
    "number_filled": number_filled,
    "rows_listed": rows_listed,
    "rows_on_gpu": rows_on_gpu,
    "number_assigned": number_assigned,
    "rows_filled": rows_filled,
    "size_read": lambda: repeated(size_is_told=False),
    "size_told": lambda: repeated(size_is_told=True),
    "logged_each_step": lambda: logged(every=1),
    "logged_seldom": lambda: logged(every=REPORTED_EVERY),
    "timed_by_host": timed_by_host,
    "timed_by_events": timed_by_events,
    "actions_checked": lambda: rollout(validates=None),
    "actions_unchecked": lambda: rollout(validates=False),
    "boxes_one_by_one": lambda: detected(of_fixed_size=False),
    "boxes_at_once": lambda: detected(of_fixed_size=True),
}

if __name__ == "__main__":
    sys.exit(run("reads", VARIANTS, stacks=True))
