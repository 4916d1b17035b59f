"""Data types of tensors: the public path of `thunder.base.dtypes`."""

import sys

from thunder.base import dtypes as _module
from thunder.base.dtypes import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
