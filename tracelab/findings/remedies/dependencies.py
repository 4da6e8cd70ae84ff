"""Reads that the host needs for what it copies to the GPU next: what can be moved instead."""

from __future__ import annotations

from tracelab.base.intervals import Int64Array
from tracelab.findings.fed_back import fed_back
from tracelab.findings.remedies.guards import recurring
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.graph import Graph

_SEMANTICS = "PyTorch documentation: CUDA semantics"
_SEMANTICS_URL = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_GUIDE = "PyTorch tutorial: A guide on good usage of non_blocking and pin_memory()"
_GUIDE_URL = "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"


def _inputs(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    return recurring(graph, graph.host.blocking_calls.event_id[fed_back(graph).is_input])


def _returned(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    return recurring(graph, graph.host.blocking_calls.event_id[fed_back(graph).is_returned])


def _computed(graph: Graph, events: Int64Array) -> Int64Array:  # noqa: ARG001
    return recurring(graph, fed_back(graph).copy_id)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="read-for-next-input",
        name="a read from which the CPU computes the next input",
        title="",
        shows="A copy to the CPU that blocks, then work of the CPU, then a copy to the GPU, with "
        "no launch, data loader or backward pass in between: an action and an environment.",
        not_when="The CPU computes something else there, and the two copies have nothing to do "
        "with one another.",
        fixes=(
            Instead(
                "The CPU needs this value at once, as an environment needs the action. Let "
                "one read serve more: more environments or sequences at a time, and all "
                "that is read in one copy. Or work on two groups in turn, so that the GPU "
                "computes for one while the CPU works on the other, or do on the GPU what "
                "the CPU does in between.",
                short="Serve more with each read: more environments or sequences at a time, and "
                "all values in one copy.",
            ),
        ),
        source=_SEMANTICS,
        url=_SEMANTICS_URL,
        rules=("TL101", "TL102"),
        edit=None,
        occurs=_inputs,
        by_call_site=True,
    ),
    Remedy(
        id="read-that-goes-back",
        name="a value that is read and copied back",
        title="",
        shows="A copy to the CPU that blocks, and right after it a copy of as many bytes to the "
        "GPU.",
        not_when="The two copies have nothing to do with one another.",
        fixes=(
            Instead(
                "A value that goes back to the GPU can stay there: use the tensor itself, "
                "and let the CPU read a copy of it one step late.",
                short="Use the tensor on the GPU itself, and let the CPU read a copy of it one "
                "step late.",
            ),
        ),
        source=_SEMANTICS,
        url=_SEMANTICS_URL,
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        occurs=_returned,
        by_call_site=True,
    ),
    Remedy(
        id="computed-input",
        name="a copy to the GPU of what the CPU computed from a read",
        title="",
        shows="As of `read-for-next-input`, the copy to the GPU.",
        not_when="As of `read-for-next-input`.",
        fixes=(
            Instead(
                "It cannot be copied ahead: the CPU computes it from what it reads right "
                "before. Compute it in pinned memory (`torch.empty(..., pin_memory=True)` "
                "once, and its `.numpy()`), and do not wait for the copy: "
                '`tensor.to("cuda", non_blocking=True)`.',
                short="Compute it in pinned memory (`torch.empty(..., pin_memory=True)` once), "
                'and copy with `x.to("cuda", non_blocking=True)`.',
            ),
        ),
        source=_GUIDE,
        url=_GUIDE_URL,
        rules=("TL102",),
        edit="pin:{place}",
        occurs=_computed,
        by_call_site=True,
    ),
)
