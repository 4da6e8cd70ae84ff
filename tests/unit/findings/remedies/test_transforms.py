"""The remedy of complex Fourier transforms of real tensors."""

import pytest

from tests.build.call_trees import LAUNCH, function, on_autograd, operator
from tests.build.remedy_programs import back_through

FORWARD, OTHER = "fno.py(31): forward", "fno.py(60): filtered"
NODE = "autograd::engine::evaluate_function: FftC2CBackward0"
TRANSFORM = operator("aten::_fft_c2c", LAUNCH)
CONVERT = operator("aten::to", operator("aten::_to_copy", LAUNCH))
OF_REAL = operator("aten::fft_fft2", CONVERT, TRANSFORM)
OF_COMPLEX = operator("aten::fft_fft2", TRANSFORM)
BACK = operator("aten::fft_ifft2", TRANSFORM)


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ([function(FORWARD, OF_REAL, BACK)], {"aten::fft_fft2", "aten::fft_ifft2", NODE}),
        ([function(FORWARD, OF_REAL), function(OTHER, BACK)], {"aten::fft_fft2", NODE}),
        ([function(FORWARD, OF_COMPLEX, BACK)], set()),
        ([function(FORWARD, OF_REAL, OF_COMPLEX, BACK)], set()),
        ([OF_REAL, BACK], set()),  # without functions nothing says that they belong together
    ],
    ids=["there and back", "back elsewhere", "of complex tensors", "of both", "without functions"],
)
def test_transforms_of_what_was_real(recognized, program, found):
    nodes = [on_autograd(operator(NODE, LAUNCH))] * 2
    events = recognized(*program, *nodes, arguments=back_through("aten::_fft_c2c", NODE))
    assert events.get("complex-transform", set()) == found
