"""RMSNorm and SwiGLU for the CPU, a few rows at a time.

The plugin of the executor `rowwise`. Thunder imports this module when it looks for executors; the executor
itself is loaded when it is first needed.
"""

from thunder.plugins import ExecutorSpec, hookimpl

from .kernels import swiglu

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
