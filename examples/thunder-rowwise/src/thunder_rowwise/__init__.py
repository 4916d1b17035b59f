"""RMSNorm and SwiGLU for the CPU, a few rows at a time.

The plugin of the executor `rowwise`. Thunder imports this module when it looks for executors; the executor
itself is loaded when it is first needed.
"""

from thunder.plugins import ExecutorSpec, Option, hookimpl

from .kernels import BLOCK, swiglu

__all__ = ["swiglu"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor of this package, used wherever no executors are given."""
    return [
        ExecutorSpec(
            "rowwise",
            "thunder_rowwise.executor:ex",
            default=True,
            description="RMSNorm and SwiGLU on the CPU",
        )
    ]


@hookimpl
def thunder_options() -> list[Option]:
    """How many elements a block has; measured placement tries others for single calls."""
    return [
        Option(
            "rowwise_block",
            int,
            BLOCK,
            "How many elements the kernels of thunder-rowwise take through all steps at a time.",
            candidates=(BLOCK >> 3, BLOCK << 1),
        )
    ]
