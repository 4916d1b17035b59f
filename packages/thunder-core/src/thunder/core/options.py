"""Options of `thunder.jit`: the public path of `thunder.base.options`."""

from thunder.base import options as _module
from thunder.base.options import *  # noqa: F403  (for type checkers)
from thunder.base.public_names import publish

publish(__name__, _module)
