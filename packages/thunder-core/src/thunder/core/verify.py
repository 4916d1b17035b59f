"""`check_trace`: the public path of `thunder.ir.verify`."""

import sys

from thunder.ir import verify as _module
from thunder.ir.verify import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
