"""Families that were compiled without being looked at before, each for what it does that others do not.

`tools/model_sweep.py` asks the same of every family of the library; `docs/models.md` has what it found.
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import thunder

from .family_checks import QUESTIONS, AsCompiled
from .shrunken import build
from .transformers_zoo import DECODER

#: family → a question, and what the family does that others do not
ASKED = {
    "albert": ("masked", "the same layers again and again"),
    "bart": ("training", "leaves out layers by a chance that is nil"),
    "ctrl": ("training", "takes square roots with NumPy"),
    "deberta": ("masked", "functions of torch.jit.script"),
    "mamba": ("forward", "marks its state for TorchDynamo"),
    "mgp-str": ("forward", "deletes a field of its output"),
    "olmo_hybrid": ("training", "a branch on the first element of a range; a recurrence beside attention"),
    "qwen3_moe": ("training", "an operator of the library's own whose backward loops over data"),
}


@pytest.mark.parametrize("family", ASKED)
def test_a_family_does_as_eager_does(family: str) -> None:
    question, _ = ASKED[family]
    QUESTIONS[question](build(family))


def test_a_family_that_asks_whether_it_is_compiled_does_as_eager_would_if_it_were() -> None:
    """Where it is compiled it does without a mask that the encoder then measures."""
    with pytest.raises(AsCompiled, match="'NoneType' object has no attribute 'shape'"):
        QUESTIONS["forward"](build("longt5"))


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_plan_for_weights_on_the_meta_device(device: str) -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**DECODER)).eval()
        tokens, mask = torch.zeros(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long)
    plan = thunder.plan(model, tokens, mask, device=device)
    assert "scaled_dot_product_attention" in str(plan.traces[-1])
