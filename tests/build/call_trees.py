"""For tests of remedies: what a program calls, as a tree; times follow from the order.

``function("train.py(3): step", operator("aten::mul", LAUNCH), operator("aten::item", READ))``: a
function that calls two operators, of which one launches a kernel and the other reads a value back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from tests.build.rows import (
    AUTOGRAD,
    D2H,
    MAIN,
    PAGEABLE_H2D,
    Row,
    call,
    copy,
    kernel,
    launch,
    step,
)
from tracelab.model.trace import Category

PAGEABLE_D2H = D2H.replace("Pinned", "Pageable")


@dataclass(frozen=True)
class Node:
    """Something the host did, and what was done inside it.

    Attributes:
        name: its name; "launch", "read", "wait" and "copy" are calls.
        category: None for a call.
        inside: in order.
        thread: index into the threads.
        copied_bytes: of a copy to the GPU.
    """

    name: str
    category: Category | None = None
    inside: tuple[Node, ...] = ()
    thread: int = MAIN
    copied_bytes: int = 0

    def __mul__(self, times: int) -> tuple[Node, ...]:
        return (self,) * times


LAUNCH = Node("launch")  # a kernel
READ = Node("read")  # a copy to pageable memory of the host, and the wait for it
WAIT = Node("wait")  # for the device


def to_gpu(copied_bytes: int) -> Node:
    """A copy from pageable memory, and the wait for it."""
    return Node("copy", copied_bytes=copied_bytes)


def function(name: str, *inside: Node | tuple[Node, ...]) -> Node:
    return Node(name, Category.PYTHON, _flat(inside))


def operator(name: str, *inside: Node | tuple[Node, ...]) -> Node:
    return Node(name, Category.OPERATOR, _flat(inside))


def annotation(name: str, *inside: Node | tuple[Node, ...]) -> Node:
    return Node(name, Category.ANNOTATION, _flat(inside))


def item(*inside: Node) -> Node:
    """What reads a number: ``aten::item``."""
    return operator("aten::item", operator("aten::_local_scalar_dense", *(inside or (READ,))))


def condition() -> Node:
    """What `if x:` calls."""
    return operator("aten::is_nonzero", item())


def positions() -> Node:
    """What finds where a mask is true."""
    return operator("aten::nonzero", LAUNCH, READ)


def on_autograd(node: Node) -> Node:
    """The same on autograd's thread."""
    return replace(node, thread=AUTOGRAD)


def backward(*inside: Node | tuple[Node, ...]) -> Node:
    """A function of the backward pass."""
    return on_autograd(operator("autograd::engine::evaluate_function: Backward0", *inside))


def program(
    *nodes: Node | tuple[Node, ...], steps: int = 2, first: Sequence[Node] = ()
) -> list[Row]:
    """The rows of a program that does all of this in each of its steps.

    Args:
        nodes: what it does in each.
        steps: how many there are.
        first: what it does in the first one only, and before the rest.
    """
    rows: list[Row] = []
    numbers = count(1)
    clock = 0
    for number in range(steps):
        begins = clock
        for node in _flat([*(first if number == 0 else ()), *nodes]):
            made = list(_rows(node, clock + 1, numbers, node.thread))
            rows += made
            clock = made[0].end
        clock += 1
        rows.append(step(number + 1, begins, clock))
    return rows


def _flat(nodes: Sequence[Node | tuple[Node, ...]]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for node in nodes:
        flat += node if isinstance(node, tuple) else [node]
    return tuple(flat)


def _rows(node: Node, begins: int, numbers: Iterator[int], thread: int) -> Iterator[Row]:
    """The rows of a node that begins at some time, itself first."""
    if node.category is None:
        yield from _calls(node, begins, numbers, thread)
        return
    clock, inside = begins + 1, []
    for child in node.inside:
        made = list(_rows(child, clock, numbers, thread))
        inside += made
        clock = max(row.end for row in made if row.device < 0) + 1
    yield Row(node.name, node.category, begins, clock, thread=thread)
    yield from inside


def _calls(node: Node, begins: int, numbers: Iterator[int], thread: int) -> Iterator[Row]:
    """The rows of a call: each takes at most 20 ns, and what it launches ends before the next."""
    number = next(numbers)
    if node.name == "wait":
        yield call("cudaDeviceSynchronize", begins, begins + 20, thread=thread)
        return
    if node.name == "launch":
        yield launch(begins, begins + 10, number, thread=thread)
        yield kernel(begins + 10, begins + 15, correlation=number)
        return
    name = PAGEABLE_H2D if node.name == "copy" else PAGEABLE_D2H
    copied_bytes = node.copied_bytes or 4
    yield call("cudaMemcpyAsync", begins, begins + 10, correlation=number, thread=thread)
    yield copy(begins + 10, begins + 15, name, copied_bytes=copied_bytes, correlation=number)
    yield call("cudaStreamSynchronize", begins + 11, begins + 20, thread=thread)
