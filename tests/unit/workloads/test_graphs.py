"""What of the programs that replay graphs runs without a GPU, and how they are listed."""

import json
from itertools import islice
from pathlib import Path

import pytest

from tracelab.workloads.catalog import CATALOG, find

MANIFEST = json.loads((Path(__file__).parents[3] / "traces" / "manifest.json").read_text())
PLANNED = MANIFEST.get("planned", [])


def test_no_line_is_both_planned_and_captured():
    captured = {name for line in MANIFEST["traces"] for name in line["files"]}
    planned = [name for line in PLANNED for name in line["files"]]
    assert len(planned) == len(set(planned))
    assert captured.isdisjoint(planned)


@pytest.mark.parametrize("line", PLANNED, ids=lambda line: line["files"][0].partition(".")[0])
def test_planned_lines_do_not_look_like_captures(line):
    entry = find(line["workload"], line["arguments"][0])
    assert not entry.is_bundled
    assert line["shows"] == entry.shows
    assert line["expect"]
    assert not {"sha256", "torch", "driver", "date", "without_profiler_ms"} & line.keys()


def test_each_variant_of_the_graphs_is_planned_or_captured():
    variants = {entry.variant for entry in CATALOG if entry.workload == "graphs"}
    lines = [*MANIFEST["traces"], *PLANNED]
    assert {x["arguments"][0] for x in lines if x["workload"] == "graphs"} == variants


@pytest.fixture(scope="module")
def graphs():
    pytest.importorskip("torch")
    from tracelab.workloads import graphs

    return graphs


def test_variants_are_those_of_the_catalog(graphs):
    listed = [entry.variant for entry in CATALOG if entry.workload == "graphs"]
    assert list(graphs.VARIANTS) == listed


def test_a_step_is_launched_before_the_one_before_it_is_used(graphs):
    done, numbers = [], iter(range(10))

    def launch():
        number = next(numbers)
        done.append(f"launch {number}")
        return number

    loop = graphs.one_behind(launch, lambda number: done.append(f"use {number}"))
    list(islice(loop, 2))
    assert done == ["launch 0", "launch 1", "use 0", "launch 2", "use 1"]


def test_schedule_lets_requests_grow_and_begin_anew(graphs):
    assert graphs.schedule([1, 7, graphs.LONGEST]) == [2, 8, 1]


def test_the_bound_is_the_same_on_the_host_and_on_the_gpu(graphs):
    import torch

    reads, decides = graphs.Bounded(reads=True), graphs.Bounded(reads=False)
    decides.load_state_dict(reads.state_dict())
    for scale in (0.001, 10):
        rows = scale * torch.randn(3, graphs.WIDTH)
        assert torch.equal(reads(rows), decides(rows))


def test_parts_together_are_the_whole(graphs):
    import torch

    network, rows = graphs.Blocks(), torch.randn(3, graphs.WIDTH)
    [whole] = network.parts(1)
    result = rows
    for part in network.parts(graphs.PARTS):
        result = part(result)
    assert torch.equal(result, whole(rows))


@pytest.mark.slow
def test_pieces_of_the_decoder_are_its_step(graphs):
    import torch

    torch.manual_seed(0)
    pieces, whole = graphs.Decoder(), graphs.Decoder()
    whole.load_state_dict(pieces.state_dict())
    for _ in range(2):
        for piece in pieces.pieces():
            piece()
        whole.step()
    assert torch.equal(pieces.token, whole.token)
    assert pieces.token.unique().numel() == 1  # all sequences began alike
    assert pieces.position.tolist() == [2]
    # between two attentions, and the attentions
    assert len(pieces.pieces()) == 2 * graphs.LAYERS + 1


def test_attention_sees_what_is_past_and_nothing_else(graphs):
    import torch

    torch.manual_seed(0)
    layer = graphs.Layer().requires_grad_(False)
    qkv = torch.randn(graphs.SEQUENCES, 3 * graphs.WIDTH)
    first = layer.attention(qkv, torch.tensor([0]))
    # Alone, a token takes its own value.
    assert torch.allclose(first, qkv[:, 2 * graphs.WIDTH :], atol=1e-6)

    layer.values[:, :, 5:] = 1_000  # of the future
    later = layer.attention(qkv, torch.tensor([1]))
    assert later.abs().max() < 100


@pytest.mark.parametrize(("reads", "breaks"), [(True, 1), (False, 0)])
def test_only_the_model_that_reads_breaks_its_graph(graphs, reads, breaks):
    import torch

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch._dynamo.explain(graphs.Bounded(reads=reads))(torch.ones(3, graphs.WIDTH))
    assert found.graph_break_count == breaks
