"""The primitives: what every composite operator decomposes into. They neither broadcast nor promote types."""

from thunder.core.prims.declaration import PrimIDs, primitive
from thunder.core.prims.movement import (
    bitcast,
    clone,
    convert_element_type,
    copy_,
    device_put,
    shallow_copy,
    stride_order,
)

__all__ = [
    "PrimIDs",
    "bitcast",
    "clone",
    "convert_element_type",
    "copy_",
    "device_put",
    "primitive",
    "shallow_copy",
    "stride_order",
]
