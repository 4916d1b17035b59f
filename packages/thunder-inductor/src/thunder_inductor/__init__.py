"""TorchInductor for thunder: regions of a program are compiled for CPUs and GPUs.

The plugin of the executor `inductor`. Thunder imports this module when it looks for executors; the
executor is loaded when it is first needed, and TorchInductor when the first region is compiled.
"""

from typing import Literal

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, Option, hookimpl

__all__ = ["thunder_executors", "thunder_options"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor, which `thunder.jit` uses by default."""
    return [
        ExecutorSpec(
            "inductor",
            "thunder_inductor.executor:ex",
            rank=Rank.FUSION,
            default=True,
            aliases=("torchcompile",),
            description="regions compiled by TorchInductor",
        )
    ]


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options of `thunder.jit` that the executor reads."""
    return [
        Option(
            "inductor_mode",
            Literal["auto", "pointwise", "full"],
            "auto",
            "What TorchInductor compiles: elementwise operators, reductions, windows and views (pointwise), "
            "also matrix products, convolutions and attention (full), or of these only small products and "
            "convolutions that are not differentiated (auto).",
        ),
        Option(
            "inductor_rounding",
            Literal["eager", "float32"],
            "eager",
            "Where results in bfloat16 and float16 are rounded: after each operator, as in eager; or, as by "
            "torch.compile, only where a kernel writes them (float32).",
        ),
        Option(
            "inductor_compile",
            Literal["now", "background", "later"],
            "now",
            "When regions are compiled: before the program first runs (now); in another process, while "
            "torch's kernels run them (background); or there, once these have taken as long as compiling "
            "takes (later). The last two change the last digits of results when code is swapped in.",
        ),
    ]
