"""Queries of ``torch.nn``'s transformers for the values of masks.

    is the mask causal?               →   no: the mask is used as it is, and the result is the same
    is the padding on the right?      →   a decision; eager would then use nested tensors, which leave zeros
                                          where the padding is, and so does the trace

A trace does not know the values of masks. Torch's own code also calls ``torch.compiler.is_compiling``;
``_EXCEPTIONS`` has the functions of torch in which it does not return True, by their code.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from thunder.base.errors import DataDependentControlFlow, UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.frame import Frame

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_ALWAYS_CALLED = "_global_forward_hooks_always_called"


def _has_no_always_called_hooks(frame: Frame) -> bool:
    module = frame.f_locals["self"]
    return not (module._forward_hooks_always_called or vars(torch.nn.modules.module)[_ALWAYS_CALLED])


class _Exception(NamedTuple):
    """A function in which ``is_compiling`` has another result than True."""

    code: types.CodeType
    is_compiling: Callable[[Frame], bool]
    reason: str


_ENCODER = torch.nn.TransformerEncoder.forward.__code__
_EXCEPTIONS = {
    id(row.code): row
    for row in (
        _Exception(_ENCODER, lambda frame: False, "True selects another computation than eager's"),
        _Exception(
            torch.nn.Module._call_impl.__code__,
            _has_no_always_called_hooks,
            "True leaves out the hooks that are called although forward raised",
        ),
    )
}


@TABLE.with_parameters(vars(torch.nn.modules.transformer).get("_detect_is_causal_mask"))
def _detect_is_causal_mask(
    session: TracingSession, mask: Any, is_causal: bool | None = None, size: int | None = None
) -> bool:
    """Return whether the caller declares the mask causal.

    Eager compares the mask with a causal one, and if they are equal the kernel masks.
    """
    return is_causal is True


@TABLE.lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True, except in the functions of ``_EXCEPTIONS``."""
    frame = session.machine.frame
    row = _EXCEPTIONS.get(id(frame.code))
    return True if row is None else row.is_compiling(frame)


# -- batches that eager packs --------------------------------------------------------------------------------


class PackedBatch(SessionState):
    """The padding mask of the batch that an encoder has packed, while that encoder runs."""

    def __init__(self, session: TracingSession) -> None:
        self._frame: Frame | None = None

    def begin(self, frame: Frame) -> None:
        """Note that the encoder of a frame has packed its batch."""
        self._frame = frame

    def frame_of(self, session: TracingSession) -> Frame | None:
        """Return the frame of the encoder, if it still runs."""
        running = self._frame is not None and any(f is self._frame for f in session.machine.frames)
        return self._frame if running else None


def _refusal() -> DataDependentControlFlow:
    return DataDependentControlFlow(
        "without gradients, eager packs the batch by the values of its padding mask, and leaves zeros where "
        "the padding is, if that is on the right",
        hint="Set use_nested_tensor = False on the encoder, or make it with enable_nested_tensor=False.",
    )


@TABLE.lookaside(torch._nested_tensor_from_mask_left_aligned)
def _is_left_aligned(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    """Decide whether no element of a sequence comes after its padding: then eager packs the batch."""
    if session.machine.frame.code is not _ENCODER or session.speculation is None:
        raise _refusal()
    _, valid = args
    falls = session.call(torch.le, (valid[:, 1:], valid[:, :-1]), {})
    return bool(session.call(bool, (session.call(torch.all, (falls,), {}),), {}))


@TABLE.lookaside(torch._nested_tensor_from_mask)
def _pack(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return the padded batch: its layers get the mask, and their result zeros where the padding is."""
    frame = session.machine.frame
    if frame.code is not _ENCODER:
        raise _refusal()
    layers = frame.f_locals["self"].layers
    if any(type(layer) is not torch.nn.TransformerEncoderLayer for layer in layers):
        raise _refusal()
    session.state(PackedBatch).begin(frame)
    return args[0]


@TABLE.lookaside(torch.nn.TransformerEncoderLayer.forward)
def _layer(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Call a layer; in an encoder that has packed its batch, with the padding mask."""
    forward = torch.nn.TransformerEncoderLayer.forward
    frame = session.state(PackedBatch).frame_of(session)
    if frame is not None and kwargs.get("src_key_padding_mask") is None:
        kwargs = {**kwargs, "src_key_padding_mask": frame.f_locals["src_key_padding_mask"]}
    return session.machine.generic_call(forward, args, kwargs)


@TABLE.lookaside(torch.Tensor.to_padded_tensor)
def _unpack(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Put zeros where the padding is."""
    frame = session.state(PackedBatch).frame_of(session)
    if frame is None:
        raise UnsupportedProgram(
            "to_padded_tensor of a nested tensor", hint="Pass the padded tensor and its mask."
        )
    batch, padding, *_ = args
    dropped = session.call(torch.ne, (frame.f_locals["src_key_padding_mask"], 0), {})
    where = session.call(torch.unsqueeze, (dropped, -1), {})
    return session.call(torch.masked_fill, (batch, where, padding), {})
