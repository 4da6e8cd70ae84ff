"""Additions and multiplications of operators, beside those that PyTorch counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from tracelab.model.operator_flops import PRODUCTS, Product, product_of

HALF = "c10::Half"


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch.utils.flop_counter")
    return torch


def recorded(torch, run, folder):
    """The products that the profiler records of a program, without those that hold another."""
    path = folder / "trace.json"
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events = [x for x in json.loads(path.read_text())["traceEvents"] if x.get("cat") == "cpu_op"]
    found = [(x, product) for x in events if (product := product_of(x["name"], *inputs(x["args"])))]

    def holds(outer, inner):
        begins = outer["tid"] == inner["tid"] and outer["ts"] <= inner["ts"]
        ends = inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
        return outer is not inner and begins and ends

    return {
        index: (x["name"], product)
        for index, (x, product) in enumerate(found)
        if not any(holds(x, other) for other, _ in found)
    }


def inputs(arguments):
    return [arguments.get(key, []) for key in ("Input Dims", "Input type", "Concrete Inputs")]


def counted(torch, run):
    """All additions and multiplications that PyTorch counts."""
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def transformer(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    x = torch.randn(2, 7, 32, requires_grad=True)

    def run():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            layer(x).sum().backward()

    return run


def residual(torch):
    nn = torch.nn
    block = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, (3, 5), padding="same", dilation=2),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
    )
    x = torch.randn(2, 4, 17, 12)
    return lambda: block(x).sum().backward()


def grouped(torch):
    block = torch.nn.Sequential(
        torch.nn.Conv1d(8, 4, 3, groups=4), torch.nn.ConvTranspose1d(4, 6, 3, groups=2)
    )

    @torch.no_grad
    def run():
        block(torch.randn(2, 8, 9))

    return run


def attention(torch):
    def made(*shape):
        return torch.empty(*shape, dtype=torch.half, device="meta")

    query, keys, values = made(2, 8, 12, 16), made(2, 4, 20, 16), made(2, 4, 20, 16)
    some, aten, lengths = (query, keys, values), torch.ops.aten, (None, None, 12, 20)

    def run():
        out, lse, *_, seed, offset, _ = aten._scaled_dot_product_flash_attention(*some, 0.0, True)
        aten._scaled_dot_product_flash_attention_backward(
            out, *some, out, lse, *lengths, 0.0, True, seed, offset
        )
        out, lse, *more = aten._scaled_dot_product_efficient_attention(*some, None, True)
        mask = [True, True, True, False]
        aten._scaled_dot_product_efficient_attention_backward(
            out, *some, None, out, lse, *more, 0.0, mask
        )
        out, lse, *_, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(*some, None, True)
        aten._scaled_dot_product_cudnn_attention_backward(
            out, *some, out, lse, seed, offset, None, *lengths, 0.0, True
        )

    return run


def scaled(torch):
    left, right = (torch.empty(16, 32, dtype=torch.float8_e4m3fn, device="meta") for _ in range(2))
    scale = torch.ones((), device="meta")
    return lambda: torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("make", [transformer, residual, grouped, attention, scaled])
def test_as_many_as_pytorch_counts(torch, tmp_path, make):
    run = make(torch)
    flops = sum(product.flops for _, product in recorded(torch, run, tmp_path).values())
    assert flops == pytest.approx(counted(torch, run), rel=0.01)
    assert flops > 0


FLOATS = ["float"] * 4
IMAGES = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"]
GRADIENTS = ["", "", "", "[8]", *IMAGES[3:], "[True, False, True]"]


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values", "product"),
    [
        # 2 * 5 * 6 * 7 * 8; (5 * 6 * 7 + 5 * 7 * 8 + 5 * 6 * 8) numbers of two bytes
        ("aten::bmm", [[5, 6, 7], [5, 7, 8]], [HALF] * 2, [], Product(3360, 1460, "fp16")),
        ("aten::addmm", [[3], [2, 5], [5, 3]], FLOATS, [], Product(60, 124, "fp32")),
        ("aten::mm", [[2, 3], [3, 4]], ["float", HALF], [], Product(48, 52, "")),
        # 4 x 4 results of 8 channels, each of 2 channels and 3 x 3 filters
        (
            "aten::convolution",
            [[1, 4, 8, 8], [8, 2, 3, 3]],
            FLOATS,
            IMAGES,
            Product(2 * 16 * 8 * 18, 4 * (256 + 144 + 128), "fp32"),
        ),
        # of images alone, as in groups as that of the forward pass
        (
            "aten::convolution_backward",
            [[1, 8, 4, 4], [1, 4, 8, 8], [8, 2, 3, 3]],
            FLOATS,
            GRADIENTS,
            Product(2 * 16 * 8 * 18, 4 * (128 + 256 + 144 + 256), "fp32"),
        ),
        # heads behind the sequence: 2 * 3 heads * 10 * 11 * (4 + 4)
        (
            "aten::_flash_attention_forward",
            [[1, 10, 3, 4], [1, 11, 3, 4], [1, 11, 3, 4], []],
            [HALF] * 3,
            [],
            Product(5280, 2 * (2 * 120 + 2 * 132), "fp16"),
        ),
        ("aten::_flash_attention_forward", [[1, 10, 3, 4]] * 3 + [[2]], [HALF] * 3, [], None),
        ("aten::mm", [[2, 3], [4, 4]], FLOATS, [], None),
        ("aten::mm", [[2, 3], [3, 4]], ["int", "int"], [], None),
        ("aten::mm", [[2**40, 2**40], [2**40, 2]], FLOATS, [], None),
        ("aten::mm", [[2**70, 1], [1, 1]], FLOATS, [], None),
        ("aten::mm", [[2, -3], [-3, 4]], FLOATS, [], None),
        ("aten::mm", [[True, 3], [3, 4]], FLOATS, [], None),
        ("aten::mm", "ab", FLOATS, [], None),
        ("aten::convolution", [[1, 4, 8, 8], [8, 2, 3, 3]], FLOATS, [], None),  # of old files
        ("aten::convolution", [[1, 4, 8, 8], [8, 2, 99, 3]], FLOATS, IMAGES, None),
        ("aten::add", [[2, 3], [3, 4]], FLOATS, [], None),
    ],
)
def test_inputs(name, shapes, types, values, product):
    assert product_of(name, shapes, types, values) == product


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["float", "[2]", "1"]),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(st.sampled_from(sorted(PRODUCTS)), ANYTHING, ANYTHING, ANYTHING)
def test_whatever_a_file_has_in_place_of_inputs_is_not_known(name, shapes, types, values):
    product = product_of(name, shapes, types, values)
    assert product is None or product.flops >= 0


@given(st.sampled_from(sorted(PRODUCTS)), st.data())
def test_shapes_that_do_not_fit_are_not_known(name, data):
    sizes = st.integers(-1, 2**54)
    shapes = data.draw(st.lists(st.lists(sizes, max_size=6), min_size=9, max_size=11))
    values = data.draw(st.lists(st.sampled_from(["1", "0", "[0]", "[-1, 2]", "x", "[9" * 40])))
    product = product_of(name, shapes, ["float"] * 11, values)
    assert product is None or 0 <= product.flops < 2**53
