"""Torch functions without a row on purpose: refused by name, with an alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from thunder.base.errors import DataDependentControlFlow, NotInitialized, ThunderError, UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import decided
from thunder.ops.torch_errors import described_arguments
from thunder.torch.argument_binding import unpacked
from thunder.torch.registration import torch_names

#: method → the out-of-place form; they change shape, strides or storage of a tensor, not its values
METADATA_WRITES = {
    "as_strided_": "as_strided",
    "detach_": "detach",
    "set_": "copy_",
    "squeeze_": "squeeze",
    "swapaxes_": "swapaxes",
    "swapdims_": "swapdims",
    "t_": "t",
    "transpose_": "transpose",
    "unsqueeze_": "unsqueeze",
}


def _refuse(names: tuple[str, ...], methods: tuple[str, ...], error: Callable[..., ThunderError]) -> None:
    @torch_names(*names, methods=methods)
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(*args, **kwargs)


def _decided(name: str, *operands: Any) -> bool:
    """Return the answer that the program is traced for; raise DataDependentControlFlow if there is none."""
    answer = decided(name, *operands)
    if answer is not UNDECIDED:
        return bool(answer)
    raise DataDependentControlFlow(
        f"torch.{name} asks for the values of tensors, which are not known while the program is traced",
        found=described_arguments(operands[:2], {}),
        hint="Use torch.isclose or torch.eq with all() and torch.where, or compare outside the function.",
    )


@torch_names("torch.equal", methods=("equal",))
def equal(input: TensorProxy, other: TensorProxy) -> bool:
    """Return whether two tensors have the same shape and elements: a decision on data."""
    return _decided("equal", input, other)


@torch_names("torch.allclose", methods=("allclose",))
def allclose(
    input: TensorProxy, other: TensorProxy, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Return whether the elements of two tensors are close: a decision on data."""
    return _decided("allclose", input, other, rtol, atol, equal_nan)


def _write_error(method: str, instead: str) -> Callable[..., ThunderError]:
    def error(input: TensorProxy, *args: Any, **kwargs: Any) -> ThunderError:
        return UnsupportedProgram(
            f"torch.Tensor.{method} changes the shape or the memory of a tensor in place",
            found={input.name: f'"{input.type_string()}"'},
            hint=f"Use the out-of-place form: {instead}.",
        )

    return error


def _resized(method: str, shape_of: Callable[..., Any]) -> None:
    refuse = _write_error(method, "reshape or torch.nn.functional.pad")

    @torch_names(f"torch.{method}", methods=(method,))
    def resize(input: TensorProxy, *size: Any, memory_format: Any = None) -> TensorProxy:
        if memory_format is None and not input.requires_grad and tuple(shape_of(*size)) == input.shape:
            return input
        if input.input_offset is not None and not input.numel():
            raise NotInitialized(
                f"torch.Tensor.{method} gives a tensor of the program's state its shape",
                found={input.name: f'"{input.type_string()}"'},
                hint="Call the module once before it is compiled.",
            )
        raise refuse(input)


_resized("resize_", lambda *size: unpacked(size))
_resized("resize_as_", lambda other: other.shape)


for _method, _instead in METADATA_WRITES.items():
    _refuse((f"torch.{_method}",), (_method,), _write_error(_method, _instead))


@torch_names(methods=("requires_grad_",))
def requires_grad_(input: TensorProxy, requires_grad: bool = True) -> TensorProxy:
    """Return the tensor; refused where it would change ``requires_grad``."""
    if input.requires_grad != requires_grad:
        raise UnsupportedProgram(
            "torch.Tensor.requires_grad_ changes whether a tensor inside the program requires grad",
            found={input.name: f'"{input.type_string()}"'},
            hint="Set it before the call, or use detach().",
        )
    return input
