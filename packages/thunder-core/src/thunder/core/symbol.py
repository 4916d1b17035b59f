"""Symbols and bound symbols: the public path of `thunder.ir.symbol`."""

from thunder.base.public_names import publish
from thunder.ir import symbol as _module
from thunder.ir.symbol import *  # noqa: F403  (for type checkers)

publish(__name__, _module)
