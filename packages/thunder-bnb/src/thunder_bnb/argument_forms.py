"""Checks of the arguments of the operators: the kernels read memory by what they expect, and check little.

With other dtypes and sizes the CPU kernels of bitsandbytes 0.50 return what is in memory, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder_transforms.weight_storage import COMPUTED

from .four_bit_kernels import BLOCKSIZES, NESTED_BLOCKSIZE

__all__ = ["check_eight_bit", "check_four_bit", "check_product"]

_Form = tuple[torch.dtype, tuple[int, ...]]


def check_four_bit(
    qweight: Any, absmax: Any, quant_map: Any, blocksize: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Raise InvalidArgument unless these are the stored tensors of a weight in 4 bits."""
    _check_weight(dtype, shape)
    if blocksize not in BLOCKSIZES or prod(shape) % 2:
        raise InvalidArgument(
            "a weight in 4 bits has blocks of a size of bitsandbytes, and an even number of elements",
            found={"blocksize": blocksize, "shape": tuple(shape)},
        )
    blocks = -(-prod(shape) // blocksize)
    given = {"qweight": qweight, "quant_map": quant_map}
    forms: dict[str, _Form] = {
        "qweight": (torch.uint8, (prod(shape) // 2, 1)),
        "quant_map": (torch.float32, (16,)),
        "absmax": (torch.float32, (blocks,)),
    }
    if isinstance(absmax, tuple):
        names = "absmax", "nested_absmax", "nested_code", "nested_offset"
        forms |= {
            "absmax": (torch.uint8, (blocks,)),
            "nested_absmax": (torch.float32, (-(-blocks // NESTED_BLOCKSIZE),)),
            "nested_code": (torch.float32, (256,)),
            "nested_offset": (torch.float32, ()),
        }
        given |= dict(zip(names, absmax, strict=len(absmax) == len(names)))
    else:
        given["absmax"] = absmax
    _check_forms(given, forms)


def check_eight_bit(qweight: Any, absmax: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raise InvalidArgument unless these are the stored tensors of a weight in int8."""
    _check_weight(dtype, shape)
    forms = {"qweight": (torch.int8, tuple(shape)), "absmax": (torch.float32, (shape[0],))}
    _check_forms({"qweight": qweight, "absmax": absmax}, forms)


def check_product(x: Any, bias: Any, shape: tuple[int, ...]) -> None:
    """Raise InvalidArgument unless a weight of this shape can be multiplied with x, and bias be added."""
    dtype = to_torch_dtype(x.dtype)
    if dtype not in COMPUTED or x.ndim == 0 or x.shape[-1] != shape[1]:
        raise InvalidArgument(
            f"x of a product with a weight {tuple(shape)} is {_described(x)}",
            found={"dtypes": ", ".join(map(str, COMPUTED)), "last dimension": shape[1]},
        )
    if bias is not None:
        _check_forms({"bias": bias}, {"bias": (dtype, (shape[0],))})


def _check_weight(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if dtype not in COMPUTED or len(shape) != 2:
        raise InvalidArgument(
            "bitsandbytes stores matrices in float32, bfloat16 and float16",
            found={"dtype": dtype, "shape": tuple(shape)},
        )


def _check_forms(given: Mapping[str, Any], forms: Mapping[str, _Form]) -> None:
    for name, (dtype, shape) in forms.items():
        tensor = given.get(name)
        if (
            not isinstance(tensor, TensorProxy)
            or tuple(tensor.shape) != shape
            or to_torch_dtype(tensor.dtype) is not dtype
        ):
            raise InvalidArgument(
                f"{name} of a stored weight is {_described(tensor)}", found={"expected": f"{dtype}, {shape}"}
            )
        if tensor.requires_grad and name != "bias":
            raise InvalidArgument(
                f"{name} of a stored weight requires grad, and what is stored is not trained"
            )


def _described(value: Any) -> str:
    if isinstance(value, TensorProxy):
        return f"{to_torch_dtype(value.dtype)}, {tuple(value.shape)}"
    return type(value).__name__
