"""Options of `thunder.jit`: the public path of `thunder.base.options`."""

import sys

from thunder.base import options as _module
from thunder.base.options import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
