"""Tools to edit traces: the public path of `thunder.ir.rewrite`."""

from thunder.base.public_names import publish
from thunder.ir import rewrite as _module
from thunder.ir.rewrite import *  # noqa: F403  (for type checkers)

publish(__name__, _module)
