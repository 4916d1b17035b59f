"""Gradients of conversions and copies: the cotangent, moved back. Its dtype is converted where it is put."""

from __future__ import annotations

from thunder.core import prims
from thunder.core.gradient_rules import Call, formulas, nondifferentiable
from thunder.core.proxies import TensorProxy
from thunder.torch import casts, creation  # noqa: F401  (the rows)
from thunder.torch.namespace import ltorch


def _moved_back(g: TensorProxy, origin: TensorProxy) -> TensorProxy:
    return g if g.device is origin.device else prims.device_put(g, origin.device)


formulas("torch.Tensor.to", "torch.Tensor.type_as", input=lambda c: _moved_back(c.g, c.input))
formulas("prims.convert_element_type", a=lambda c: c.g)
formulas("prims.device_put", a=lambda c: _moved_back(c.g, c.a))
formulas("torch.clone", "torch.Tensor.contiguous", input=lambda c: c.g)
formulas("prims.clone", "prims.shallow_copy", "prims.stride_order", a=lambda c: c.g)

# bits of one type are no number of another
nondifferentiable("prims.bitcast", "torch.Tensor.view_dtype", "prims.item")

# -- tensors of one value, of parts --------------------------------------------------------------------------


def _of_value(c: Call) -> TensorProxy:
    return _moved_back(ltorch.sum(c.g), c.value)


nondifferentiable(
    *(f"prims.{name}" for name in ("full", "empty", "iota", "linspace", "tensor_from_sequence"))
)
formulas("torch.fill", input=lambda c: ltorch.zeros_like(c.input), value=_of_value)
formulas(
    "torch.complex",
    real=lambda c: ltorch.real(c.g),
    imag=lambda c: ltorch.imag(c.g),
)
