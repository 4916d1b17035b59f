"""What to try, for each kind of finding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["ADVICE", "DECISIONS", "NO_CACHE", "SIZES", "STATE"]

#: kind of a finding → what to try
ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "first call": "time a later call. thunder-store keeps compiled programs for the next process "
        "(docs/kept_programs.md); docs/first_calls.md has what makes a first call short.",
        "recompiles": "keep the fact out of the program: pass a number that varies as a tensor, read state "
        "outside and give it as an argument. THUNDER_LOGS=recompiles shows each one.",
        "run by Python": "raise recompile_limit, or ask about fewer values (a bool in place of a number).",
        "guards": "thunder.transforms.PrunePrologueChecks leaves out the checks of modules, which then may "
        'not change, cache="same input" all checks; many small parameters can be one tensor.',
        "small program": "compile more at once: the function or module around it, or the whole step with its "
        "loss and backward.",
        "around the statements": "compile the whole step, with loss, backward and optimizer, as one function "
        "(docs/training.md): then torch's autograd has nothing to do; return fewer results.",
        "threads": "torch.set_num_threads({threads}), or OMP_NUM_THREADS={threads} before the start.",
        "synchronisations": "keep values in tensors (x.sum() in place of x.sum().item(), torch.where in "
        "place of if), and read them once, at the end.",
        "copies": "leave out .contiguous() and .clone() where the next operator takes any strides; keep "
        "tensors on one device and in one dtype; store a tensor as it is read.",
        "no fusion": "add an executor that compiles regions: pip install thunder-inductor, and "
        'executors=["inductor"]; on a GPU also nvfuser or triton.',
        "left to torch": "use operators that the executor has, or register a kernel (docs/executors.md). "
        "thunder.explain(compiled) has the reason of each call.",
        "fallback": "use operators that have rows (docs/operators.md), or register one with a decomposition "
        "or a kernel (docs/executors.md).",
        "small regions": "remove what ends them: operators that the executor does not have, reads of "
        "numbers, writes in place, opaque calls. thunder.explain(compiled) has the reason of each call.",
        "memory": 'memory_budget="1 GiB" of thunder.jit computes values again in the backward; checkpoint '
        "layers; use operators that save less (scaled_dot_product_attention in place of a softmax).",
        "kernels": 'compare executors, first executors=["torch"]; ProfileTransform has the time of each line '
        "(docs/watching.md).",
    }
)
#: in place of the advice on recompiles: where sizes vary
SIZES: Final = (
    'let the sizes be symbols: thunder.mark_dynamic(x, dim), or cache="symbolic values"; or pad to a few '
    "sizes."
)
#: where answers to questions about data vary
DECISIONS: Final = (
    "ask about fewer values of tensors: a bool in place of a number, torch.where in place of if; or raise "
    "recompile_limit."
)
#: with cache="no caching"
NO_CACHE: Final = 'leave out cache="no caching", which compiles in each call.'
#: where the program reads what it changes
STATE: Final = (
    "keep what the program counts or collects out of it, or in a tensor that it writes in place; mark the "
    "function that reads it by thunder.opaque."
)
