"""The executor `triton`: regions as generated Triton kernels; and the step of AdamW in one kernel."""

from thunder_triton.executor import TritonExecutor
from thunder_triton.executor import ex as triton_ex
from thunder_triton.library.foreach_adamw import FOREACH_ADAMW

__all__ = ["FOREACH_ADAMW", "TritonExecutor", "triton_ex"]
