"""Additions and multiplications of PyTorch's operators, from the shapes of their inputs.

They are counted as `torch.utils.flop_counter` does, a bias not at all and causal attention in
whole, except the gradient of grouped filters, which it counts once for each group, and
`aten::_flash_attention_forward`, whose heads it takes for its sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

_FORMATS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "double": ("fp64", 8),
        "float": ("fp32", 4),
        "c10::Half": ("fp16", 2),
        "c10::BFloat16": ("bf16", 2),
        **{f"c10::Float8_{x}": ("fp8", 1) for x in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
    }
)
_MAX_EXACT = 2**53  # the sum of larger numbers is not exact
_MAX_TEXT_LETTERS = 64

_Shape = list[int]
_Count = tuple[int, int]  # additions and multiplications; numbers in factors and results


class Product(NamedTuple):
    """Work of an operator.

    `moved_bytes` are the factors and the results, each once: the least to read and write; the
    `number_format` is that of the factors, "fp16", or "" where they have several.
    """

    flops: int
    moved_bytes: int
    number_format: str


def product_of(name: str, shapes: Any, types: Any, values: Any) -> Product | None:
    """The work of an operator; None where it is no product, or the inputs do not say enough.

    The shapes are the profiler's "Input Dims", the types "Input type", the values "Concrete
    Inputs"; they are not trusted.
    """
    rule = PRODUCTS.get(name)
    if rule is None:
        return None
    try:
        if rule.packed is not None and shapes[rule.packed]:
            return None
        formats = {_FORMATS[types[place]] for place in rule.factors}
        flops, numbers = rule.counts([_shape(shapes[x]) for x in rule.factors], values)
    # Whatever there may be in place of lists, numbers and names.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    moved_bytes = numbers * min(size for _, size in formats)
    if max(flops, moved_bytes) >= _MAX_EXACT:
        return None
    names = {number_format for number_format, _ in formats}
    return Product(flops, moved_bytes, names.pop() if len(names) == 1 else "")


def _shape(shape: Any) -> _Shape:
    sizes = list(shape)
    if not all(type(size) is int and 0 <= size < _MAX_EXACT for size in sizes):
        raise ValueError(shape)
    return sizes


def _value(text: Any) -> Any:
    return orjson.loads(text[:_MAX_TEXT_LETTERS].lower())


def _matrices(shapes: Sequence[_Shape], _: Any) -> _Count:
    (*batch, m, k), (*same_batch, same_k, n) = shapes
    if (batch, k) != (same_batch, same_k) or len(batch) > 1:
        raise ValueError(shapes)
    return prod(batch) * 2 * m * k * n, prod(batch) * (m * k + k * n + m * n)


def _convolution(
    shapes: Sequence[_Shape],
    values: Any,
    *,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    transposed: int | None = None,
) -> _Count:
    # By the places of its values; without that of a switch, a plain one.
    (batch, _, *images), (filters, of_group, *window) = shapes
    dims = len(images)
    steps, pads, gaps = (
        _shape(_value(values[place])) * (dims if values[place].count(",") == 0 else 1)
        for place in (stride, padding, dilation)
    )
    reach = [d * (size - 1) + 1 - 2 * p for d, size, p in zip(gaps, window, pads, strict=True)]
    if transposed is not None and _value(values[transposed]):
        channels, at = of_group * _value(values[groups]), images
        result = [s * (x - 1) + r for s, x, r in zip(steps, images, reach, strict=True)]
    else:
        channels = filters
        at = result = [(x - r) // s + 1 for s, x, r in zip(steps, images, reach, strict=True)]
    if dims not in (1, 2, 3) or min(_shape([channels, *result])) == 0:
        raise ValueError(shapes)
    numbers = sum(map(prod, shapes)) + batch * channels * prod(result)
    return 2 * batch * prod(at) * prod(shapes[1]), numbers


def _convolution_backward(shapes: Sequence[_Shape], values: Any) -> _Count:
    gradient, images, filters = shapes
    of_images, of_filters, _ = map(bool, _value(values[10]))
    at = images if _value(values[7]) else gradient
    if not 3 <= len(images) == len(gradient) == len(filters) <= 5:
        raise ValueError(shapes)
    flops = 2 * at[0] * prod(at[2:]) * prod(filters) * (of_images + of_filters)
    made = of_images * prod(images) + of_filters * prod(filters)
    return flops, sum(map(prod, shapes)) + made


def _attention(shapes: Sequence[_Shape], _: Any, *, heads: int) -> _Count:
    # `heads` is the dimension of its heads; with a gradient first it is the backward pass.
    *gradient, query, keys, values = shapes
    length = 3 - heads
    (batch, *_, width), (*_, value_width) = query, values
    is_same = (keys[0], keys[3], keys[:3]) == (batch, width, values[:3])
    if not is_same or query[heads] % keys[heads] or {*map(len, shapes)} != {4}:
        raise ValueError(shapes)
    rows = batch * query[heads] * query[length]
    numbers = sum(map(prod, (query, keys, values))) + rows * value_width
    if gradient:  # of values, weights, queries and keys, and the weights themselves once more
        return 2 * rows * keys[length] * (3 * width + 2 * value_width), 2 * numbers
    return 2 * rows * keys[length] * (width + value_width), numbers


class _Rule(NamedTuple):
    """Counting of an operator by the places of its factors; an error where inputs do not fit.

    `packed` is the place of the lengths of sequences that are packed: no file says how long.
    """

    factors: tuple[int, ...]
    counts: Callable[[Sequence[_Shape], Any], _Count]
    packed: int | None = None


_HEADS_FIRST, _HEADS_LAST = partial(_attention, heads=1), partial(_attention, heads=2)
_FUSED = tuple(f"aten::_scaled_dot_product_{x}_attention" for x in ("flash", "efficient", "cudnn"))
_IMAGES = partial(_convolution, stride=3, padding=4, dilation=5, transposed=6, groups=8)
# The operators that are products, each with its rule; what they call is not counted again.
PRODUCTS: Mapping[str, _Rule] = MappingProxyType(
    {
        **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_scaled_mm"), _Rule((0, 1), _matrices)),
        **dict.fromkeys(
            ("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"), _Rule((1, 2), _matrices)
        ),
        **dict.fromkeys(("aten::convolution", "aten::_convolution"), _Rule((0, 1), _IMAGES)),
        "aten::cudnn_convolution": _Rule(
            (0, 1), partial(_convolution, padding=2, stride=3, dilation=4, groups=5)
        ),
        "aten::miopen_convolution": _Rule(
            (0, 1), partial(_convolution, padding=3, stride=4, dilation=5, groups=6)
        ),
        "aten::convolution_backward": _Rule((0, 1, 2), _convolution_backward),
        **dict.fromkeys(_FUSED, _Rule((0, 1, 2), _HEADS_FIRST)),
        **{f"{name}_backward": _Rule((0, 1, 2, 3), _HEADS_FIRST) for name in _FUSED},
        "aten::_flash_attention_forward": _Rule((0, 1, 2), _HEADS_LAST, 3),
        "aten::_flash_attention_backward": _Rule((0, 1, 2, 3), _HEADS_LAST, 6),
        "aten::_efficient_attention_forward": _Rule((0, 1, 2), _HEADS_LAST, 4),
        "aten::_efficient_attention_backward": _Rule((0, 1, 2, 3), _HEADS_LAST, 6),
        "flash_attn::_flash_attn_forward": _Rule((0, 1, 2), _HEADS_LAST),
        "flash_attn::_flash_attn_backward": _Rule((0, 1, 2, 3), _HEADS_LAST),
    }
)
