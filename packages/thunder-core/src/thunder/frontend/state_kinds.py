"""The kinds of state of a program, one class each, in the order in which the end of a program asks them.

A kind says what the program has written of it (``writes``), what is left to do when the program returns
(``finish``), which ends have no trace (``check``), what the epilogue repeats (``emit_before``, the ``emit``
of each write, ``emit_after``), and how it is undone after tracing (``end``). Its rules read and guard it.
Objects and variables, which every program has, are in ``objects/``.
"""

from __future__ import annotations

from typing import Final

from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.leaf_hooks import LeafHooks
from thunder.frontend.custom_gradients.module_backward_hooks import HookedModules
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.custom_gradients.tensor_hooks import TensorHooks
from thunder.frontend.lookasides.context_values import ContextVariables
from thunder.frontend.lookasides.grad_requests import GradRequests
from thunder.frontend.lookasides.locks import Locks
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.lookasides.weakrefs import Callbacks, Finalizers
from thunder.frontend.natives.cached_functions import CachedCalls
from thunder.frontend.natives.decimal_context import DecimalContext
from thunder.frontend.opaque_calls.opaque_iterators import OpaqueIterators
from thunder.frontend.output.progress_bars import Bars
from thunder.frontend.session import SessionState
from thunder.frontend.torch_functions.made_parameters import MadeParameters
from thunder.frontend.types.written_attributes import WrittenAttributes

__all__ = ["KINDS"]

KINDS: Final[tuple[type[SessionState], ...]] = (
    Bars,  # prints, so it is the first
    ReboundTensors,  # adds writes in place, at which others look
    Locks,
    Callbacks,
    Finalizers,
    LeafHooks,
    TensorHooks,
    HookedModules,
    MadeParameters,
    BackwardState,
    ContextVariables,
    DecimalContext,
    CachedCalls,
    Arrays,
    OpaqueIterators,
    WrittenAttributes,  # adds tensors to the results, which may be leaves
    GradRequests,
    RetainedGradients,
)
