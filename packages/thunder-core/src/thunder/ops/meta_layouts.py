"""Layouts that torch's device `meta` gives the tensors of a program: probable, and quickly computed.

Fake tensors follow the kernels of the real device (`layouts`), but each call of one takes half a
millisecond, and the first of a process imports TorchDynamo. Compilers of regions check the strides for
which their code was compiled, so that they need probable strides only.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.layouts import MATRIX_PRODUCTS, STRIDES_OF_KERNELS, Layouts

__all__ = ["MetaLayouts"]

#: operators whose results are contiguous for arguments in any layout, with their primitives
_CONTIGUOUS = MATRIX_PRODUCTS | {"prims.matmul", "prims.linear", "torch.nn.functional.embedding"}
#: the names of operators that choose a kernel, and with it strides, by the device
_BY_DEVICE = re.compile(r"conv(olution|_|\d)|scaled_dot_product_attention")


class MetaLayouts(Layouts):
    """A lazy evaluation of a program on tensors of the device `meta`.

    A result of a matrix product is taken to be contiguous, and nothing before it is evaluated. Methods
    raise UnsupportedProgram for a tensor that depends on an operator whose strides the device decides.
    """

    def _without_data(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _device(self, device: Any) -> torch.device:
        return torch.device("meta")

    def _is_declared(self, proxy: TensorProxy, call: BoundSymbol | None) -> bool:
        return super()._is_declared(proxy, call) or (call is not None and call.sym.id in _CONTIGUOUS)

    def _run(self, call: BoundSymbol) -> None:
        operator = call.sym.id
        if operator in STRIDES_OF_KERNELS or _BY_DEVICE.search(operator):
            raise UnsupportedProgram(f"the device decides the strides of the results of {operator}")
        super()._run(call)
