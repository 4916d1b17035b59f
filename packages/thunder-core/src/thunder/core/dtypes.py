"""Data types of tensors: the public path of `thunder.base.dtypes`."""

from thunder.base import dtypes as _module
from thunder.base.dtypes import *  # noqa: F403  (for type checkers)
from thunder.base.dtypes import (
    bfloat16 as bfloat16,
)
from thunder.base.dtypes import (
    bool8 as bool8,
)
from thunder.base.dtypes import (
    complex32 as complex32,
)
from thunder.base.dtypes import (
    complex64 as complex64,
)
from thunder.base.dtypes import (
    complex128 as complex128,
)
from thunder.base.dtypes import (
    float4_e2m1fn_x2 as float4_e2m1fn_x2,
)
from thunder.base.dtypes import (
    float8_e4m3fn as float8_e4m3fn,
)
from thunder.base.dtypes import (
    float8_e4m3fnuz as float8_e4m3fnuz,
)
from thunder.base.dtypes import (
    float8_e5m2 as float8_e5m2,
)
from thunder.base.dtypes import (
    float8_e5m2fnuz as float8_e5m2fnuz,
)
from thunder.base.dtypes import (
    float8_e8m0fnu as float8_e8m0fnu,
)
from thunder.base.dtypes import (
    float16 as float16,
)
from thunder.base.dtypes import (
    float32 as float32,
)
from thunder.base.dtypes import (
    float64 as float64,
)
from thunder.base.dtypes import (
    int8 as int8,
)
from thunder.base.dtypes import (
    int16 as int16,
)
from thunder.base.dtypes import (
    int32 as int32,
)
from thunder.base.dtypes import (
    int64 as int64,
)
from thunder.base.dtypes import (
    uint8 as uint8,
)
from thunder.base.dtypes import (
    uint16 as uint16,
)
from thunder.base.dtypes import (
    uint32 as uint32,
)
from thunder.base.dtypes import (
    uint64 as uint64,
)
from thunder.base.public_names import publish

publish(__name__, _module)
