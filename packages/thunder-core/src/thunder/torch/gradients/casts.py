"""Gradients of conversions and copies: the cotangent, converted and moved back."""

from __future__ import annotations

from thunder.ops import prims
from thunder.ops.gradient_rules import formulas, nondifferentiable
from thunder.torch.namespace import ltorch
from thunder.torch.rows import casts, creation  # noqa: F401  (the rows)

formulas("torch.Tensor.to", "torch.Tensor.type_as", input=lambda c: c.g)
formulas("prims.convert_element_type", "prims.device_put", a=lambda c: c.g)
formulas("torch.clone", "torch.Tensor.contiguous", input=lambda c: c.g)
formulas("prims.clone", "prims.shallow_copy", "prims.stride_order", a=lambda c: c.g)
# of the shape alone, so that the old value is not saved
formulas(
    "prims.overwrite",
    a=lambda c: c.g,
    old=lambda c: prims.full(c.old.shape, 0, device=c.old.device, dtype=c.old.dtype),
)

formulas("prims.replace_data", old=lambda c: c.g)

# the bits of one type are not a number of another
nondifferentiable("prims.bitcast", "torch.Tensor.view_dtype", "prims.item")

# -- tensors of one value, of parts --------------------------------------------------------------------------


nondifferentiable(
    *(f"prims.{name}" for name in ("full", "empty", "iota", "linspace", "tensor_from_sequence"))
)
formulas("torch.fill", input=lambda c: ltorch.zeros_like(c.input), value=lambda c: c.g)
formulas(
    "torch.complex",
    real=lambda c: ltorch.real(c.g),
    imag=lambda c: ltorch.imag(c.g),
)
