"""LoRA adapters next to their base layers: in inference they could be merged into these."""

import pytest

from tests.build.call_trees import LAUNCH, backward, function, operator

LORA = "peft/tuners/lora/layer.py(1074): forward"
CHECK = "peft/tuners/lora/layer.py(826): _check_forward_args"
SET_ADAPTER = "peft/tuners/tuners_utils.py(2100): set_adapter"


def layer(number):
    return function(f"nn.Module: Linear_{number}", operator("aten::linear", LAUNCH))


def adapted(*beside, change=None):
    """A layer with what is computed beside it."""
    forward = function(LORA, function(CHECK), layer(0), *beside)
    return function("nn.Module: Linear_9", *(change or ()), forward)


ADAPTER = (layer(1), layer(2), operator("aten::add", operator("aten::add_", LAUNCH)))


def test_all_but_the_base_layer(recognized):
    found = recognized(adapted(*ADAPTER), LAUNCH)
    assert found["unmerged-adapters"] == {
        CHECK,
        "nn.Module: Linear_1",
        "nn.Module: Linear_2",
        "aten::add",
    }


@pytest.mark.parametrize(
    "nodes",
    [
        [adapted()],  # merged
        [adapted(*ADAPTER), backward(LAUNCH)],  # trained
        [adapted(*ADAPTER, change=[function(SET_ADAPTER)])],  # one for each request
        [function("nn.Module: Linear_9", layer(0), *ADAPTER)],  # not an adapter's
    ],
)
def test_what_cannot_be_merged(recognized, nodes):
    assert "unmerged-adapters" not in recognized(*nodes, LAUNCH)
