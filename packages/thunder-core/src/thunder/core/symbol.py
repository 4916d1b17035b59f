"""Symbols and bound symbols: the public path of `thunder.ir.symbol`."""

import sys

from thunder.ir import symbol as _module
from thunder.ir.symbol import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
