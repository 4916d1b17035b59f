"""Traces: the public path of `thunder.ir.trace`."""

from thunder.base.public_names import publish
from thunder.ir import trace as _module
from thunder.ir.trace import *  # noqa: F403  (for type checkers)

publish(__name__, _module)
