"""Transformers: what its models, its Trainer and its generation ask of the GPU in each step."""

from __future__ import annotations

import numpy as np

from tracelab.base.intervals import Int64Array
from tracelab.findings.remedies.guards import (
    blocks,
    called_directly,
    chosen,
    counts_inside,
    every,
    functions_around,
    made_by,
    operators_named,
    recurs,
)
from tracelab.findings.remedy import Instead, Remedy
from tracelab.model.driver_api import is_graph_launch
from tracelab.model.graph import Graph
from tracelab.model.lookup import calls_of_name
from tracelab.model.program.call_sites import python_frames
from tracelab.model.trace import ABSENT

_MASK_CHECK = (
    r"transformers/(?:masking_utils|modeling_attn_mask_utils)\.py\(\d+\): "
    r"_ignore_(?:causal|bidirectional)_mask_sdpa$"
)
_PACKED_CHECK = r"transformers/masking_utils\.py\(\d+\): find_packed_sequence_indices$"
_TRAINER = r"transformers/trainer\.py\(\d+\): (?:_inner_training_loop|_run_epoch|_run_epoch_step)$"
_GENERATION = (
    r"transformers/generation/utils\.py\(\d+\): (?:__call__|_has_unfinished_sequences"
    r"|_?(?:sample|greedy_search|beam_search|beam_sample|group_beam_search|contrastive_search"
    r"|assisted_decoding|constrained_beam_search))$"
)


_CACHE_UPDATE = r"transformers/cache_utils\.py\(\d+\): update$"
_FEWEST_TOKENS = 4  # of each layer of the model: fewer are no decoding


def _finds_no_padding(graph: Graph, events: Int64Array) -> Int64Array:
    """The checks after which no mask was made: no token was padding.

    Then the function around the check of the mask runs no further operator.
    """
    timeline = graph.host.timeline
    trace, operators, frames = timeline.trace, timeline.operators, python_frames(timeline)
    check = functions_around(graph, events)
    known = check != ABSENT
    events, check = events[known], check[known]
    is_function = np.ones(len(frames.event_id), dtype=np.bool_)
    maker = frames.around(frames.parent_index[check], is_function)
    makes_mask = np.zeros(len(events), dtype=np.bool_)
    for thread in np.unique(trace.thread_index[events]).tolist():
        starts_ns = operators.start_ns[operators.of_thread(thread)]
        chosen = np.flatnonzero((trace.thread_index[events] == thread) & (maker != ABSENT))
        first = np.searchsorted(starts_ns, frames.end_ns[check[chosen]])
        makes_mask[chosen] = np.searchsorted(starts_ns, frames.end_ns[maker[chosen]]) > first
    return events[~makes_mask]


def _grows(graph: Graph, events: Int64Array) -> Int64Array:
    """The generations in which the cache is copied to grow, and no CUDA graph is launched."""
    trace = graph.host.timeline.trace
    cat_id = operators_named(graph.host.timeline, r"^aten::cat$")
    grows = every(made_by(_CACHE_UPDATE), recurs)(graph, cat_id)
    is_grown = counts_inside(trace, events, grows) >= _FEWEST_TOKENS
    is_grown &= counts_inside(trace, events, calls_of_name(trace, is_graph_launch)) == 0
    return chosen(events, is_grown)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="hf-mask-check",
        name="an attention mask that is searched for padding and has none",
        title="Transformers checks the attention mask for padding, and there is none",
        shows="`_ignore_causal_mask_sdpa` or `_ignore_bidirectional_mask_sdpa` runs "
        "`aten::is_nonzero`, and no mask is made after it.",
        not_when="Some row is padded: without its mask the result is wrong.",
        fixes=(
            Instead(
                "Pass `attention_mask=None` where no row is padded: one sequence, equal lengths, "
                "packed data. Else pass a mask of four dimensions, made once for all steps.",
                short="Pass `attention_mask=None` where no row is padded, else a mask of four "
                "dimensions, made once for all steps.",
            ),
        ),
        source="Transformers source: masking_utils.py, and pull request 43088",
        url="https://github.com/huggingface/transformers/pull/43088",
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        frames=_MASK_CHECK,
        operators=r"^aten::(?:is_nonzero|all|eq|sum)$",
        occurs=every(made_by(_MASK_CHECK), _finds_no_padding, recurs),
    ),
    Remedy(
        id="hf-packed-check",
        name="position ids that are searched for packed sequences",
        title="Transformers checks the position ids for packed sequences, and the CPU waits",
        shows="`find_packed_sequence_indices` of masking_utils.py runs `aten::is_nonzero`.",
        not_when="The sequences are packed.",
        fixes=(
            Instead(
                "Omit `position_ids` where they count from 0: the model makes them itself, "
                "and does not search them.",
                short="Omit `position_ids` where they count from 0: the model makes them itself, "
                "and does not search them.",
            ),
        ),
        source="Transformers source: masking_utils.py",
        url="https://github.com/huggingface/transformers/blob/main/src/transformers/"
        "masking_utils.py",
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        frames=_PACKED_CHECK,
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="hf-flash-unpad",
        name="sequence lengths that FlashAttention works out in each layer",
        title="Transformers computes the sequence lengths for FlashAttention in each layer",
        shows="`_get_unpad_data`, `prepare_fa_kwargs_from_position_ids` or `_is_packed_sequence` "
        "of modeling_flash_attention_utils.py reads back, twice a layer.",
        not_when="A step has one such layer.",
        fixes=(
            Instead(
                "Give the lengths with the batch: "
                "`DataCollatorWithFlattening(return_flash_attn_kwargs=True)`, or pass "
                "`cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and `max_length_k` to the model. "
                'At little padding `attn_implementation="sdpa"` is faster.',
                short="Pass the lengths with the batch: "
                "`DataCollatorWithFlattening(return_flash_attn_kwargs=True)`. With little "
                'padding, use `attn_implementation="sdpa"`.',
            ),
        ),
        source="Transformers documentation: DataCollatorWithFlattening",
        url="https://huggingface.co/docs/transformers/main_classes/data_collator"
        "#transformers.DataCollatorWithFlattening",
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        frames=r"transformers/(?:modeling_flash_attention_utils|models/\w+/modeling_\w+)"
        r"\.py\(\d+\): (?:_get_unpad_data|prepare_fa\w*_from_position_ids|_is_packed_sequence)$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="hf-nan-filter",
        name="the Trainer's search for losses that are not finite",
        title="The Trainer checks whether each loss is finite, and the CPU waits",
        shows="The training loop of transformers/trainer.py runs `aten::isnan` and "
        "`aten::is_nonzero` after each micro-batch.",
        not_when="The run relies on a logged loss that leaves such steps out.",
        fixes=(Instead("Pass `TrainingArguments(logging_nan_inf_filter=False)`."),),
        source="Transformers issue 33693",
        url="https://github.com/huggingface/transformers/issues/33693",
        rules=("TL101", "TL301"),
        edit="remove:{place}",
        frames=_TRAINER,
        operators=r"^aten::(?:isnan|isinf|is_nonzero)$",
        occurs=every(made_by(_TRAINER), recurs),
    ),
    Remedy(
        id="hf-trainer-log",
        name="the Trainer's log in each step",
        title="The Trainer reads the loss and the gradient norm from the GPU for its log",
        shows="`_maybe_log_save_evaluate` of transformers/trainer.py calls `.item()` in at least "
        "two steps of a short recording.",
        not_when="The log needs each step.",
        fixes=(Instead("Pass `TrainingArguments(logging_steps=50)`, or more."),),
        source="Transformers documentation: TrainingArguments",
        url="https://huggingface.co/docs/transformers/main_classes/trainer"
        "#transformers.TrainingArguments",
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"transformers/trainer\.py\(\d+\): _maybe_log_save_evaluate$",
        operators=r"^aten::item$",
        occurs=every(
            made_by(r"transformers/trainer\.py\(\d+\): _maybe_log_save_evaluate$"), blocks, recurs
        ),
    ),
    Remedy(
        id="hf-stop-check",
        name="generation that asks after each token whether all is done",
        title="`generate()` checks after each token whether every sequence has ended",
        shows="`_sample`, `StopCheck.__call__` or `_has_unfinished_sequences` of "
        "transformers/generation/utils.py runs `aten::is_nonzero` or `aten::item`.",
        not_when="One sequence that ends early: the wait is a dependency.",
        fixes=(
            Instead(
                "The next token depends on it, so make it rarer, or cheap. Generate more sequences "
                'at once. Use `cache_implementation="static"`, which compiles the decoding step, '
                "so that one launch follows the wait. Pass `synced_gpus=False` unless the model is "
                "sharded over the GPUs. For serving, use an engine with asynchronous scheduling.",
                short='Pass `cache_implementation="static"`, so that one launch follows each '
                "wait, and generate more sequences at once.",
            ),
        ),
        source="Transformers source: generation/utils.py",
        url="https://github.com/huggingface/transformers/blob/main/src/transformers/generation/"
        "utils.py",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        frames=_GENERATION,
        operators=r"^aten::(?:is_nonzero|item)$",
        occurs=every(called_directly, made_by(_GENERATION), blocks, recurs),
    ),
    Remedy(
        id="hf-dynamic-cache",
        name="generation with a cache that grows",
        title="`generate()` launches the kernels of each token one by one, and its cache grows",
        shows="`update` of transformers/cache_utils.py runs `aten::cat` for each token and layer, "
        "and nothing is launched as a CUDA graph.",
        not_when="The model has no static cache, or memory is short: a static cache has room for "
        "the longest text from the start.",
        fixes=(
            Instead(
                'Pass `cache_implementation="static"` to `generate`: keys and values keep their '
                "shape, and Transformers compiles the decoding step and replays it as a CUDA "
                "graph.",
                since="2.3",
                short='Pass `cache_implementation="static"` to `generate`: Transformers then '
                "replays each decoding step as a CUDA graph.",
            ),
        ),
        source="Transformers documentation: KV cache strategies, static cache",
        url="https://huggingface.co/docs/transformers/kv_cache#static-cache",
        rules=("TL301",),
        edit="graph:{place}",
        frames=_GENERATION,
        occurs=_grows,
        is_general=True,
    ),
)
