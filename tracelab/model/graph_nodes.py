"""What a file says of the nodes of CUDA graphs that ran: whose they are, what they are part of.

Kineto says nothing of them. PyTorch's own CUPTI collector does, and so does a Kineto export to
which the annotations of the graphs were given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.base.arrays import Frozen
from tracelab.base.intervals import Int64Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphNodes(Frozen):
    """Of k runs of nodes which node it was, and l dependencies between them.

    One more row comes last, in which all is `ABSENT`: that of events that are no nodes.

    Attributes:
        graph_number: int64[k + 1], the graph as the process numbers those that it instantiated.
        node_number: int64[k + 1], the node in its graph.
        annotation_index: int32[k + 1], into `annotations`.
        annotations: what the program called the regions in which nodes were captured.
        predecessor_id, successor_id: int64[l], event ids in pairs: within one replay the second
            could start only once the first had ended.

    Example row: ``(graph_number=3, node_number=17, annotation_index=0)`` with ``annotations[0] ==
    "layers.0.attention"``.
    """

    graph_number: Int64Array
    node_number: Int64Array
    annotation_index: NDArray[np.int32]
    annotations: tuple[str, ...]
    predecessor_id: Int64Array
    successor_id: Int64Array

    def __len__(self) -> int:
        return len(self.node_number) - 1
