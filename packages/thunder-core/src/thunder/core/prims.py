"""The primitives: the public path of `thunder.ops.prims`."""

import sys

from thunder.ops import prims as _module
from thunder.ops.prims import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
